import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call, parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { holdTimers } from '../harness/clock/hold-timers.ts';
import { CANARY } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';

/** What the failure of a message says that may have run. */
const MAYBE_STARTED = { maybeStarted: true, retryable: false } as const;

let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

/** Sends a message; resolves once the bot service has received it. */
async function sent(answer: (socket: Socket) => void = () => {}, environment: Record<string, string> = {}) {
  pair = await startRelayAndUpstream(answer, environment);
  const arrived = pair.upstream.nextRequest();
  const client = pair.ask({ headers: ['Connection: close'] });
  await arrived;
  return client;
}

/** Expects an answer after which no load balancer and no client sends the message again. */
async function expectLost(client: RawClient, cause: string): Promise<void> {
  await client.closed;
  const answer = parseAnswer(client.text());
  expectErrorEvent(answer, 502, 'answer_lost', MAYBE_STARTED);
  expect(answer.headers['retry-after']).toBeUndefined();
  expect(pair.upstream.requests).toHaveLength(1);
  expect(await pair.relay.logLine(({ outcome }) => outcome === 'answer_lost')).toMatchObject({
    level: 'warn',
    status: 200,
    cause,
  });
}

describe('a message that was sent to the bot service', () => {
  test('is answered that its answer is lost when the relay shuts down before it begins', async () => {
    const client = await sent();
    await pair.relay.close();
    pair.relay.close = async () => {};
    await expectLost(client, 'draining');
  });

  test('is answered that its answer is lost when its session ends before it begins', async () => {
    const client = await sent();
    const headers = { Cookie: pair.cookie };
    expect((await call(pair.relay.port, '/auth/logout', { method: 'POST', headers })).status).toBe(204);
    await expectLost(client, 'session_ended');
  });

  test.each([
    ['half of the head of a stream', 'HTTP/1.1 200 OK\r\nContent-Type: text/ev'],
    ['half of a refusal', 'HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{'],
  ])('is answered that its answer is lost when it is aborted after %s', async (_what, bytes) => {
    const client = await sent((socket) => socket.write(bytes));
    // Once a later request is served, these bytes have arrived.
    await call(pair.relay.port, '/healthz');
    pair.relay.open.endAll(new Problem('draining', 'Gone.', { retryAfter: 1 }));
    await expectLost(client, 'draining');
  });

  test('is answered that the bot service does not answer in time', async () => {
    const timeIsOver = holdTimers(87_654);
    const client = await sent(() => {}, { UPSTREAM_RESPONSE_TIMEOUT_MS: '87654' });
    timeIsOver();
    await client.closed;
    expectErrorEvent(parseAnswer(client.text()), 504, 'upstream_timeout', MAYBE_STARTED);
  });
});

describe('a message that the bot service has refused', () => {
  test.each([
    ['429', { RATE_MAX_WAIT_MS: '60000' }, ['Retry-After: 50']],
    [
      '401',
      {
        RATE_LIMIT: '1',
        RATE_WINDOW_MS: '60000',
        RATE_MAX_WAIT_MS: '60000',
        UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
      },
      [],
    ],
  ])(
    'with %s is told that the relay shuts down, and that it may be sent again',
    async (status, environment, headers) => {
      const client = await sent((socket) => socket.write(plainAnswer(`${status} No`, headers)), environment);
      await until(() => pair.upstream.sockets[0]?.destroyed === true);
      pair.relay.open.endAll(new Problem('draining', 'Gone.'));
      await client.closed;
      expectErrorEvent(parseAnswer(client.text()), 503, 'draining', { retryable: 'new message' });
      expect(pair.upstream.requests).toHaveLength(1);
    },
  );
});
