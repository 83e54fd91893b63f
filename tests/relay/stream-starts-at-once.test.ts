import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { afterEach, expect, jest, test } from '@jest/globals';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

/** The channel on which Node.js reports every request to a server. */
const REQUESTS = 'http.server.request.start';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

test('the client gets status and headers before the first byte of the body', async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD));
  const client = pair.ask();
  await client.waitFor('\r\n\r\n');
  expect(client.text()).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(client.text()).toMatch(/\r\nContent-Type: text\/event-stream\r\n/i);
  expect(client.text()).toMatch(/\r\n\r\n$/);
  pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: a\n\n'), Buffer.from(LAST_CHUNK)]));
  await client.waitFor(LAST_CHUNK);
});

test('data that arrives with the headers of the service is sent together with the headers', async () => {
  const head = Buffer.from(STREAM_HEAD);
  pair = await startRelayAndUpstream((socket) => socket.write(Buffer.concat([head, chunk('data: a\n\n')])));
  const toSystem = jest.fn();
  const watch = (message: unknown) => {
    const { socket } = message as { socket: Socket };
    // Every write of a socket to the system goes through one of these methods.
    const { _write, _writev } = socket;
    socket._write = (...args) => toSystem() ?? _write.apply(socket, args);
    socket._writev = (...args) => toSystem() ?? _writev?.apply(socket, args);
  };
  subscribe(REQUESTS, watch);
  await pair.ask().waitFor('data: a');
  unsubscribe(REQUESTS, watch);
  expect(toSystem).toHaveBeenCalledTimes(1);
});
