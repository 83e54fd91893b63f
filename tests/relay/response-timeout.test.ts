import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { holdTimers } from '../harness/clock/hold-timers.ts';
import { expectNoCanary } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const TIMEOUT_MS = 87_654;

let pair: RelayAndUpstream;
let timeIsOver: () => void;
beforeEach(() => {
  timeIsOver = holdTimers(TIMEOUT_MS);
});
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

/** Sends a message to a service that answers with `bytes`; resolves when the relay has read them. */
async function ask(bytes: string): Promise<{ answer: Promise<Response>; socket: Socket }> {
  const answered = Promise.withResolvers<Socket>();
  pair = await startRelayAndUpstream((socket) => void socket.write(bytes, () => answered.resolve(socket)), {
    UPSTREAM_RESPONSE_TIMEOUT_MS: String(TIMEOUT_MS),
  });
  const answer = pair.relay.send(pair.cookie);
  const socket = await answered.promise;
  // Once a later request is served, they have arrived.
  await call(pair.relay.port, '/healthz');
  return { answer, socket };
}

describe('a bot service', () => {
  test.each([
    ['sends nothing', ''],
    ['sends half of its headers', 'HTTP/1.1 200 OK\r\nContent-Type: text/event-'],
    ['sends only an interim response', 'HTTP/1.1 103 Early Hints\r\nLink: </leak>\r\n\r\n'],
    [
      'sends the body of a refusal too slowly',
      'HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: 8000\r\n\r\n{"leak":"',
    ],
  ])('that %s times out, and its request is aborted', async (_name, bytes) => {
    const { answer, socket } = await ask(bytes);
    timeIsOver();
    const response = await answer;
    const text = await response.text();
    expect(response.status).toBe(200);
    expect(errorEventIn(text)).toMatchObject({ status: 504, code: 'upstream_timeout', maybeStarted: true });
    expect(text).not.toMatch(new RegExp(`http|127\\.0\\.0\\.1|leak|${pair.upstream.port}`));
    expectNoCanary(text);
    await until(() => socket.destroyed);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('that answered in time may be silent for longer than the timeout', async () => {
    const { answer, socket } = await ask(STREAM_HEAD);
    const response = await answer;
    timeIsOver();
    socket.write(Buffer.concat([chunk('data: late\n\n'), Buffer.from(LAST_CHUNK)]));
    expect(await response.text()).toBe('data: late\n\n');
  });
});
