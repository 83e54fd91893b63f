import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { responseSink } from '../../src/relay/message/response-sink.ts';

/** A sink to a response that has closed; `heartbeats` is called by it. */
async function closedSink(heartbeats: { watch(): void; unwatch(): void }) {
  const server = createServer((_req, res) => res.destroy());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const asked = once(server, 'request');
  request({ port: (server.address() as AddressInfo).port })
    .on('error', () => {})
    .end();
  const [, res] = await asked;
  if (!res.closed) await once(res, 'close');
  server.close();
  return responseSink({
    ...{ res, stream: { bytes: 0 }, log: {}, heartbeats },
    identity: { requestId: 'r', bot: { namespace: 'n', botProviderName: 'b' } },
  });
}

test('a stream to a response that has closed already is told so at once, and gets no heartbeats', async () => {
  let [watched, closed] = [0, 0];
  const sink = await closedSink({ watch: () => watched++, unwatch: () => watched-- });
  sink.open({ full() {}, drained() {}, mayBeat: () => true, closed: () => closed++ });
  expect([closed, watched]).toEqual([1, 0]);
});

test('the end of a stream to a response that has closed already leaves no timer', async () => {
  const sink = await closedSink({ watch() {}, unwatch() {} });
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  sink.endEarly(new Problem('stopped', 'Stopped.'), false);
  expect(timers()).toBe(before);
});
