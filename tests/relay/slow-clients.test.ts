import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterAll, expect } from '@jest/globals';
import express from 'express';
import { Problem } from '../../src/errors.ts';
import type { CarriedStream, RequestLocals } from '../../src/http/locals.ts';
import { carryStream } from '../../src/relay/message/carry-stream.ts';
import { createHeartbeats } from '../../src/relay/message/heartbeats.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { UNHEALED } from '../harness/relay/unhealed.ts';
import { askUpstream } from '../harness/service/ask-upstream.ts';
import { CLOSE_DELIMITED_HEAD, startRawUpstream } from '../harness/service/raw-upstream.ts';

const STALLED_MS = 1000;
/** More than the buffers between the upstream and a client can hold. */
const MUCH = Buffer.alloc(9 * (3 << 20), 'data: a\n\n');

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers) await close();
});

/** Carries a stream of `bytes` to a client that reads nothing yet. */
async function carried(
  bytes: Buffer,
  { stop = new AbortController(), stalledMs = STALLED_MS, version = '1.1' } = {},
) {
  const upstream = await startRawUpstream((socket) => {
    socket.write(CLOSE_DELIMITED_HEAD);
    socket.end(bytes);
  });
  const app = express();
  const over = new Promise<{ log: RequestLocals; stream: CarriedStream }>((resolve) => {
    app.get('/', async (_req, res) => {
      const answer = await askUpstream(upstream.url);
      res.flushHeaders();
      const heartbeats = createHeartbeats(0);
      const stream: CarriedStream = { bytes: 0 };
      const identity = { requestId: 'the-id', bot: { namespace: 'acme', botProviderName: 'helper' } };
      const ends = { answer, res, identity, stream, log: res.locals };
      await carryStream({ ...ends, signal: stop.signal, heartbeats, stalledMs, ...UNHEALED });
      resolve({ log: res.locals, stream });
    });
  });
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = rawClient(
    (server.address() as AddressInfo).port,
    `GET / HTTP/${version}\r\nHost: a\r\n\r\n`,
  );
  client.socket.pause();
  closers.push(async () => {
    client.socket.destroy();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await upstream.close();
  });
  await until(() => upstream.sockets.length > 0);
  return { over, client, upstreamSocket: upstream.sockets[0] as Socket };
}

async function cutAfterAWhile(): Promise<void> {
  const startedAt = performance.now();
  const { over, upstreamSocket } = await carried(MUCH);
  const { log, stream } = await over;
  expect(performance.now() - startedAt).toBeGreaterThan(STALLED_MS * 0.9);
  expect(log.outcome).toBe('client_stalled');
  await until(() => upstreamSocket.destroyed);
  expect(stream.bytes).toBeLessThan(MUCH.length);
}

async function resetForHttp10(): Promise<void> {
  const { over, client } = await carried(MUCH, { version: '1.0' });
  expect((await over).log.outcome).toBe('client_stalled');
  client.socket.resume();
  expect(await client.closed).toEqual({ error: 'ECONNRESET' });
}

async function cutWhenAborted(): Promise<void> {
  const stop = new AbortController();
  const { over } = await carried(MUCH, { stop, stalledMs: 60_000 });
  // Longer than it takes to fill the buffers of client and relay.
  await sleep(STALLED_MS / 2);
  stop.abort(new Problem('deadline_exceeded', 'Too long.'));
  expect((await over).log.outcome).toBe('deadline_exceeded');
}

async function readSlowly(): Promise<void> {
  const { over, client } = await carried(MUCH);
  const startedAt = performance.now();
  let read = 0;
  let finished = false;
  client.socket.removeAllListeners('data');
  const timer = setInterval(() => client.socket.resume(), STALLED_MS / 10);
  client.socket.on('data', (data) => {
    read += data.length;
    finished ||= data.includes('\r\n0\r\n\r\n');
    // In total it takes several times STALLED_MS.
    if (read % (1 << 20) < data.length) client.socket.pause();
  });
  const { log, stream } = await over;
  await until(() => finished || client.socket.destroyed);
  clearInterval(timer);
  expect(performance.now() - startedAt).toBeGreaterThan(2 * STALLED_MS);
  expect(log.outcome).toBeUndefined();
  expect(stream.bytes).toBe(MUCH.length);
  expect(read).toBeGreaterThan(MUCH.length);
}

testSideBySide([
  ['a client that reads nothing is cut after a while, and the upstream is aborted', cutAfterAWhile],
  [
    'an HTTP/1.0 client that reads nothing is reset, so that its stream does not look complete',
    resetForHttp10,
  ],
  ['a client that reads nothing is cut when its stream is aborted, without an error event', cutWhenAborted],
  ['a client that is slow but reads is not cut, and gets everything', readSlowly],
]);
