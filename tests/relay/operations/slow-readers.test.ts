import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { CLIENT_LEFT } from '../../../src/http/client-connection.ts';
import { sendBody } from '../../../src/relay/operations/send-answer.ts';
import { call } from '../../harness/clients/call.ts';
import { operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { pass, stopClock } from '../../harness/clock/stop-clock.ts';
import { startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';

/** More than the buffers between a server and a client hold. */
const MUCH = Buffer.alloc(24 << 20, 'a');

/** Longer than a test takes. */
const LONG = { stallMs: 600_000, wholeMs: 600_000 };

const closings: (() => Promise<unknown>)[] = [];
afterEach(() => Promise.all(closings.splice(0).map((close) => close())));

/** Sends `MUCH` to a client that reads nothing yet. */
async function send(times: { stallMs: number; wholeMs: number }, signal = new AbortController().signal) {
  const log: { outcome?: string } = {};
  const over = Promise.withResolvers<unknown>();
  const begun = Promise.withResolvers<Socket>();
  const server = createServer((_req, res) => {
    sendBody(MUCH, { res, signal, log, times }).then(
      () => over.resolve('sent'),
      (reason) => {
        res.destroy();
        over.resolve(reason);
      },
    );
    begun.resolve(res.socket as Socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = rawClient((server.address() as AddressInfo).port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n');
  client.socket.pause();
  closings.push(() => {
    client.socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return { client, log, over: over.promise, begun: begun.promise };
}

describe('a whole answer', () => {
  test('is cut when its client takes too long to read it, though it goes on reading', async () => {
    const { client, log, over } = await send({ ...LONG, wholeMs: 500 });
    const reading = setInterval(() => client.socket.resume().once('data', () => client.socket.pause()), 20);
    expect(await over).toBe(CLIENT_LEFT);
    clearInterval(reading);
    expect(log).toEqual({ outcome: 'client_stalled' });
    client.socket.resume();
    await client.closed;
    expect(client.text().length).toBeLessThan(MUCH.length);
  });

  test('is cut when its client reads nothing for a while', async () => {
    const { client, log, over } = await send({ ...LONG, stallMs: 300 });
    expect(await over).toBe(CLIENT_LEFT);
    expect(log).toEqual({ outcome: 'client_stalled' });
    client.socket.resume();
    await client.closed;
    expect(client.text().length).toBeLessThan(MUCH.length);
  });

  test('is not cut while its client reads slowly', async () => {
    stopClock();
    const stallMs = 1_000;
    const { client, over, begun } = await send({ ...LONG, stallMs });
    const served = await begun;
    for (let n = 0; n < 4; n += 1) {
      const before = served.bytesWritten;
      // It takes no more than it must, so that there is something left for the next time.
      while (served.bytesWritten === before) {
        client.socket.resume();
        await once(client.socket, 'data');
        client.socket.pause();
        await setImmediate();
      }
      pass(stallMs - 1);
    }
    client.socket.resume();
    expect(await over).toBe('sent');
  });

  test('is sent when its client has read it', async () => {
    const { client, log, over } = await send(LONG);
    client.socket.resume();
    expect(await over).toBe('sent');
    expect(log).toEqual({});
  });

  test('ends with its signal, also with one that has aborted before', async () => {
    const stop = new AbortController();
    const { over, begun } = await send(LONG, stop.signal);
    await begun;
    stop.abort('over');
    expect(await over).toBe('over');
    const { client, over: atOnce } = await send(LONG, stop.signal);
    // The request comes only with the connection.
    client.socket.resume();
    expect(await atOnce).toBe('over');
  });
});

test('an operation whose client does not read its answer is under way until then', async () => {
  const pair = await startRelayAndUpstream(
    (socket) => void socket.write(jsonAnswer('200 OK', 'a'.repeat((1 << 20) - 2))),
  );
  closings.push(pair.close);
  const { path } = operationRequest(operationAt('GET channel/metadata'));
  const request = `GET ${path} HTTP/1.1\r\nHost: app.example.com\r\nCookie: ${pair.cookie}\r\n\r\n`;
  // So many that the buffers between do not hold all of their answers.
  const client = rawClient(pair.relay.port, request.repeat(5));
  client.socket.pause();
  const ended = () => pair.relay.logs.filter(({ bot }) => bot === 'acme/helper').length;
  // Nothing moves any more.
  for (let before = -1, same = 0; same < 20; before = ended()) {
    await call(pair.relay.port, '/healthz');
    same = ended() > 0 && ended() === before ? same + 1 : 0;
  }
  expect(pair.upstream.requests.length).toBe(ended() + 1);
  const logout = { method: 'POST', headers: { Cookie: pair.cookie } };
  expect((await call(pair.relay.port, '/auth/logout', logout)).status).toBe(204);
  expect(await pair.relay.logLine(({ outcome }) => outcome === 'session_ended')).toMatchObject({
    status: 200,
  });
  client.socket.destroy();
});
