import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, test } from '@jest/globals';
import { createUpstream } from '../../src/relay/upstream/send.ts';

test('a message that is aborted while its connection is still being opened closes it', async () => {
  // It takes the connection, and never answers the TLS handshake.
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const upstream = createUpstream(new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}`));
  const stop = new AbortController();
  const opened = once(server, 'connection');
  const request = { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') };
  const sent = upstream.send(request, { signal: stop.signal, onDelayed: async () => {}, onSent() {} });
  const [socket] = (await opened) as [Socket];
  const closed = once(socket.resume(), 'close');
  stop.abort('left');
  await expect(sent).rejects.toBe('left');
  await closed;
  server.close();
  upstream.close();
});
