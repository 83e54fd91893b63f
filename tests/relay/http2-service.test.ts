import { once } from 'node:events';
import { createSecureServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import tls from 'node:tls';
import { expect, test } from '@jest/globals';
import { selfSigned } from '../harness/faults/fake-load-balancer.ts';
import { startRelay } from '../harness/relay/relay.ts';

test('a bot service that offers HTTP/2 gets HTTP/1.1 requests', async () => {
  const identity = selfSigned();
  // Set it before the first connection; it is valid for this file only.
  tls.setDefaultCACertificates([identity.cert]);
  const versions: string[] = [];
  const service = createSecureServer({ ...identity, allowHTTP1: true }, (req, res) => {
    versions.push(req.httpVersion);
    req.resume();
    res.setHeader('Content-Type', 'text/event-stream');
    res.end('data: a\n\n');
  }).listen(0, '127.0.0.1');
  await once(service, 'listening');
  const relay = await startRelay(`https://127.0.0.1:${(service.address() as AddressInfo).port}`);
  const response = await relay.send(await relay.signIn());
  expect([response.status, await response.text()]).toEqual([200, 'data: a\n\n']);
  expect(versions).toEqual(['1.1']);
  await relay.close();
  await new Promise((resolve) => service.close(resolve));
});
