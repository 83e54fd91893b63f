import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from '@jest/globals';
import { operationProxy } from '../../../src/relay/operations/operation-proxy.ts';
import { secret } from '../../../src/secret.ts';
import { call } from '../../harness/clients/call.ts';
import { plainAnswer } from '../../harness/relay/relay-and-upstream.ts';
import { startRawUpstream } from '../../harness/service/raw-upstream.ts';

const NOTED = { onLeaving: () => {}, onSent: () => {} };

test('a request has left as soon as a part of it may have, and is sent when all of it is', async () => {
  const calls: string[] = [];
  // It takes the first bytes only.
  const service = createServer().on('connection', (socket) => {
    socket.removeAllListeners('data').once('data', () => socket.destroy());
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const proxy = operationProxy(new URL(`http://127.0.0.1:${(service.address() as AddressInfo).port}`));
  const server = createServer(async (req, res) => {
    const body = Buffer.alloc(64 * 1024 * 1024);
    const request = { path: '/large', headers: { 'content-length': String(body.length) }, body };
    const noted = { onLeaving: () => calls.push('leaving'), onSent: () => calls.push('sent') };
    const signal = new AbortController().signal;
    await proxy(req, res, { request, key: secret('k'), signal, ...noted }).catch(() => calls.push('failed'));
    service.close();
    await proxy(req, res, { request, key: secret('k'), signal, ...noted }).catch(() => calls.push('no one'));
    res.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  await call((server.address() as AddressInfo).port, '/here', { method: 'POST' });
  expect(calls).toEqual(['leaving', 'failed', 'no one']);
  server.close();
});

test('a request that is sent many times does not reach the listener limit of Node.js', async () => {
  const upstream = await startRawUpstream((socket) => void socket.write(plainAnswer('200 OK', [])));
  const proxy = operationProxy(new URL(upstream.url));
  const counts: number[][] = [];
  const server = createServer(async (req, res) => {
    const signal = new AbortController().signal;
    const body = Buffer.from('{"n":1}');
    const request = { path: '/stop', headers: { 'content-length': String(body.length) }, body };
    const url = req.url;
    for (let n = 0; n < 8; n += 1) {
      const answer = await proxy(req, res, { request, key: secret('k'), signal, ...NOTED });
      answer.resume();
      for (const event of ['close', 'error']) counts.push([res.listenerCount(event), res.getMaxListeners()]);
      for (const event of ['error', 'data']) counts.push([req.listenerCount(event), req.getMaxListeners()]);
    }
    res.end(String(req.url === url));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  expect((await call(port, '/here', { method: 'POST' })).body).toBe('true');
  expect(counts.filter(([listeners = 0, most = 0]) => listeners > most)).toEqual([]);
  expect(counts).toHaveLength(32);
  expect(upstream.requests.map(({ body }) => String(body))).toEqual(Array(8).fill('{"n":1}'));
  expect(upstream.requests.map(({ requestLine }) => requestLine)).toEqual(
    Array(8).fill('POST /stop HTTP/1.1'),
  );
  server.close();
  await upstream.close();
});
