import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import express from 'express';
import { Problem } from '../../src/errors.ts';
import type { CarriedStream, RequestLocals } from '../../src/http/locals.ts';
import { carryStream } from '../../src/relay/message/carry-stream.ts';
import { createHeartbeats } from '../../src/relay/message/heartbeats.ts';
import { askUpstream } from '../support/ask-upstream.ts';
import { until } from '../support/pair.ts';
import { type RawClient, rawClient } from '../support/raw-client.ts';
import { CLOSE_DELIMITED_HEAD, type RawUpstream, startRawUpstream } from '../support/raw-upstream.ts';

const STALLED_MS = 300;
/** More than the buffers between the upstream and a client can hold. */
const MUCH = Buffer.alloc(9 * (4 << 20), 'data: a\n\n');

let upstream: RawUpstream;
let server: Server;
let client: RawClient;
afterEach(async () => {
  client.socket.destroy();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await upstream.close();
});

/** A client that reads nothing yet of a stream of `bytes`, which is carried with `stalledMs`. */
async function carried(bytes: Buffer, stop = new AbortController(), stalledMs = STALLED_MS) {
  upstream = await startRawUpstream((socket) => {
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
      const of = { requestId: 'the-id', bot: { namespace: 'acme', botProviderName: 'helper' } };
      const ends = { upstream: answer, res, of, stream, log: res.locals };
      await carryStream({ ...ends, signal: stop.signal, heartbeats, stalledMs });
      resolve({ log: res.locals, stream });
    });
  });
  server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  client = rawClient((server.address() as AddressInfo).port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n');
  client.socket.pause();
  await until(() => upstream.sockets.length > 0);
  return { over };
}

const upstreamSocket = () => upstream.sockets[0] as Socket;

describe('a client that reads nothing', () => {
  test('is cut after a while, and the upstream is aborted', async () => {
    const startedAt = performance.now();
    const { over } = await carried(MUCH);
    const { log, stream } = await over;
    expect(performance.now() - startedAt).toBeGreaterThan(STALLED_MS * 0.9);
    expect(log.outcome).toBe('client_stalled');
    await until(() => upstreamSocket().destroyed);
    expect(stream.bytes).toBeLessThan(MUCH.length);
  });

  test('is cut by a stream that has to end, even if that cannot be told', async () => {
    const stop = new AbortController();
    const { over } = await carried(MUCH, stop, 60_000);
    // Longer than the client's and the relay's buffers take to fill, shorter than a stall.
    await new Promise((resolve) => setTimeout(resolve, STALLED_MS / 2));
    stop.abort(new Problem('deadline_exceeded', 'Too long.'));
    expect((await over).log.outcome).toBe('deadline_exceeded');
  }, 15_000);
});

test('a client that is slow but reads is not cut, and gets everything', async () => {
  const { over } = await carried(MUCH);
  let read = 0;
  let finished = false;
  client.socket.removeAllListeners('data');
  const timer = setInterval(() => client.socket.resume(), STALLED_MS / 6);
  client.socket.on('data', (data) => {
    read += data.length;
    finished ||= data.includes('\r\n0\r\n\r\n');
    // About two seconds in all: many times the period.
    if (read % (1 << 20) < data.length) client.socket.pause();
  });
  const { log, stream } = await over;
  await until(() => finished || client.socket.destroyed);
  clearInterval(timer);
  expect(log.outcome).toBeUndefined();
  expect(stream.bytes).toBe(MUCH.length);
  expect(read).toBeGreaterThan(MUCH.length);
}, 15_000);
