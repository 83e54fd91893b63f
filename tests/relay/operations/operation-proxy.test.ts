import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from '@jest/globals';
import { operationProxy } from '../../../src/relay/operations/operation-proxy.ts';
import { secret } from '../../../src/secret.ts';
import { call } from '../../support/call.ts';
import { plainAnswer } from '../../support/pair.ts';
import { startRawUpstream } from '../../support/raw-upstream.ts';

test('a request that is sent many times never has more listeners than Node.js warns of', async () => {
  const upstream = await startRawUpstream((socket) => void socket.write(plainAnswer('200 OK', [])));
  const proxy = operationProxy(new URL(upstream.url));
  const counts: number[][] = [];
  const server = createServer(async (req, res) => {
    const signal = new AbortController().signal;
    const request = { path: '/stop', headers: {} };
    const url = req.url;
    for (let n = 0; n < 8; n += 1) {
      const answer = await proxy(req, res, { request, key: secret('k'), signal, onSent: () => {} });
      answer.resume();
      for (const event of ['close', 'error']) counts.push([res.listenerCount(event), res.getMaxListeners()]);
      counts.push([req.listenerCount('error'), req.getMaxListeners()]);
    }
    res.end(String(req.url === url));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  expect((await call(port, '/here', { method: 'POST' })).body).toBe('true');
  expect(counts.filter(([listeners = 0, most = 0]) => listeners > most)).toEqual([]);
  expect(counts).toHaveLength(24);
  expect(upstream.requests.map(({ requestLine }) => requestLine)).toEqual(
    Array(8).fill('POST /stop HTTP/1.1'),
  );
  server.close();
  await upstream.close();
});
