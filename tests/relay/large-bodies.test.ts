import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import { type RawUpstream, STREAM_HEAD, startRawUpstream } from '../support/raw-upstream.ts';
import { sleep } from '../support/sleep.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

let service: RawUpstream;
let upstream: Upstream;
beforeEach(async () => {
  service = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
  upstream = createUpstream(new URL(service.url));
});
afterEach(() => service.close());

/** Sends a body of 2 MiB; returns the answer, and a weak reference to the body. */
async function sendLarge(): Promise<{ answer: UpstreamAnswer; body: WeakRef<Buffer>; sent: number }> {
  const body = Buffer.alloc(2 << 20, ' ');
  let sent = 0;
  const answer = await upstream.send(
    { path: '/', headers: { 'content-length': String(body.length) }, body },
    { signal: new AbortController().signal, onDelayed: async () => {}, onSent: () => void sent++ },
  );
  return { answer, body: new WeakRef(body), sent };
}

test('an open stream does not keep the body of its message', async () => {
  const { answer, body, sent } = await sendLarge();
  expect(answer.status).toBe(200);
  expect(service.requests[0]?.body.length).toBe(2 << 20);
  expect(sent).toBeGreaterThan(0);
  for (let tries = 0; tries < 50 && body.deref(); tries++) {
    await sleep(20);
    collectGarbage();
  }
  expect(body.deref()).toBeUndefined();
  answer.close();
});
