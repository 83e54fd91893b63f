import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from '@jest/globals';
import { responseSink } from '../../src/relay/message/response-sink.ts';

test('a stream to a response that has closed already is told so at once, and gets no heartbeats', async () => {
  const server = createServer((_req, res) => res.destroy());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const asked = once(server, 'request');
  request({ port: (server.address() as AddressInfo).port })
    .on('error', () => {})
    .end();
  const [, res] = await asked;
  if (!res.closed) await once(res, 'close');
  let [watched, closed] = [0, 0];
  const sink = responseSink({
    ...{ res, stream: { bytes: 0 }, log: {} },
    identity: { requestId: 'r', bot: { namespace: 'n', botProviderName: 'b' } },
    heartbeats: { watch: () => watched++, unwatch: () => watched-- },
  });
  sink.open({ full() {}, drained() {}, mayBeat: () => true, closed: () => closed++ });
  expect([closed, watched]).toEqual([1, 0]);
  server.close();
});
