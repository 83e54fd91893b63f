import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { afterEach, expect, jest, test } from '@jest/globals';
import { type Pair, startPair } from '../support/pair.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';

/** Where Node tells of every request that a server of it has got. */
const REQUESTS = 'http.server.request.start';

let pair: Pair;
afterEach(() => pair.close());

test('the client has the status and the headers before a byte of the body was sent (S2)', async () => {
  pair = await startPair((socket) => socket.write(STREAM_HEAD));
  const client = pair.ask();
  await client.waitFor('\r\n\r\n');
  expect(client.text()).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(client.text()).toMatch(/\r\nContent-Type: text\/event-stream\r\n/i);
  expect(client.text()).toMatch(/\r\n\r\n$/);
  pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: a\n\n'), Buffer.from(LAST_CHUNK)]));
  await client.waitFor(LAST_CHUNK);
});

test('what came with the headers of the service leaves with the headers', async () => {
  const head = Buffer.from(STREAM_HEAD);
  pair = await startPair((socket) => socket.write(Buffer.concat([head, chunk('data: a\n\n')])));
  const toSystem = jest.fn();
  const watch = (message: unknown) => {
    const { socket } = message as { socket: Socket };
    // All that a socket hands to the system goes through one of these, in one piece or in several.
    const { _write, _writev } = socket;
    socket._write = (...args) => toSystem() ?? _write.apply(socket, args);
    socket._writev = (...args) => toSystem() ?? _writev?.apply(socket, args);
  };
  subscribe(REQUESTS, watch);
  await pair.ask().waitFor('data: a');
  unsubscribe(REQUESTS, watch);
  expect(toSystem).toHaveBeenCalledTimes(1);
});
