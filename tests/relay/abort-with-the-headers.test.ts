import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { sendAndJudge } from '../../src/relay/message/send-and-judge.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { type RawUpstream, STREAM_HEAD, startRawUpstream } from '../harness/service/raw-upstream.ts';

const REQUEST = { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') };

let service: RawUpstream;
let upstream: Upstream;
beforeEach(async () => {
  service = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
  upstream = createUpstream(new URL(service.url));
});
afterEach(async () => {
  upstream.close();
  await service.close();
});

test('a message that is aborted when its headers arrive closes its connection to the service', async () => {
  const stop = new AbortController();
  const send: Upstream['send'] = async (request, options) => {
    const answer = await upstream.send(request, options);
    stop.abort('ended');
    return answer;
  };
  const options = { onDelayed: async () => {}, onSent: () => {}, onStatus: () => {}, mask: String };
  await expect(sendAndJudge({ ...options, send, request: REQUEST, signal: stop.signal })).rejects.toBe(
    'ended',
  );
  await until(() => service.sockets.every((socket) => socket.destroyed));
});
