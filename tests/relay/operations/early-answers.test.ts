import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { expect, test } from '@jest/globals';
import { Problem } from '../../../src/errors.ts';
import { operationSender } from '../../../src/relay/operations/send-operation.ts';
import { secret } from '../../../src/secret.ts';
import { call } from '../../harness/clients/call.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/relay/relay-and-upstream.ts';

/** More than the buffers between two sockets hold. */
const MUCH = 18_000_000;

test('a connection is closed on which the service has answered before it has read the form', async () => {
  const sockets: Socket[] = [];
  const service = createTcpServer((socket) => {
    sockets.push(socket.on('error', () => {}));
    socket.once('data', () => socket.pause().write(jsonAnswer('200 OK', { blobId: 'b1' })));
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(service.address() as AddressInfo).port}`);
  const send = operationSender({ baseUrl: url, responseTimeoutMs: 60_000 });
  const { signal } = new AbortController();
  // All of it is handed over at once, and most of it waits in the sender's socket.
  const upload = { signal, done: Promise.resolve() };
  const request = { path: '/blob', headers: {}, stream: Readable.from([Buffer.alloc(MUCH)]) };
  const noted = { onLeaving: () => {}, onSent: () => {}, onStatus: () => {} };
  const sending = { operation: {}, upload, request, key: secret('k'), mask: String, signal, ...noted };
  const server = createServer(async (req, res) => {
    const verdict = await send(req, res, sending);
    res.end(verdict instanceof Problem ? verdict.code : verdict.body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { body } = await call((server.address() as AddressInfo).port, '/here', { method: 'POST' });
  expect(body).toBe('{"blobId":"b1"}');
  const [socket] = sockets as [Socket];
  socket.on('data', () => {}).resume();
  await until(() => socket.readableEnded || socket.destroyed || socket.bytesRead >= MUCH);
  expect(socket.bytesRead).toBeLessThan(MUCH);
  socket.destroy();
  server.close();
  service.close();
});
