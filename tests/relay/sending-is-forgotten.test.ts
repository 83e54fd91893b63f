import { subscribe, unsubscribe } from 'node:diagnostics_channel';
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
afterEach(async () => {
  upstream.close();
  await service.close();
});

/** undici tells with what head each answer came. */
const HEADS = 'undici:request:headers';
const heads: WeakRef<object>[] = [];
const noteHead = (message: unknown) => {
  heads.push(new WeakRef((message as { response: { headers: object } }).response.headers));
};
beforeEach(() => subscribe(HEADS, noteHead));
afterEach(() => {
  unsubscribe(HEADS, noteHead);
  heads.length = 0;
});

/** Sends a request; returns its answer, and what only the sending has needed, without keeping that. */
async function send(): Promise<{ answer: UpstreamAnswer; needed: readonly WeakRef<object>[] }> {
  const options = {
    signal: new AbortController().signal,
    mayStart: () => true,
    onDelayed: async () => {},
    onSent: () => {},
  };
  const headers = { 'content-length': '2' };
  const request = { path: '/', headers, body: Buffer.from('{}') };
  const answer = await upstream.send(request, options);
  const { mayStart, onDelayed, onSent, signal } = options;
  return { answer, needed: [mayStart, onDelayed, onSent, signal, headers].map((one) => new WeakRef(one)) };
}

async function whenCollected(refs: readonly WeakRef<object>[]): Promise<void> {
  for (let tries = 0; tries < 50 && refs.some((one) => one.deref()); tries += 1) {
    await sleep(20);
    collectGarbage();
  }
}

test('an open stream keeps nothing that only its sending has needed', async () => {
  service = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
  upstream = createUpstream(new URL(service.url));
  const { answer, needed } = await send();
  answer.read({ data() {}, end() {}, broken() {} });
  await whenCollected(needed);
  expect(service.sockets.filter((socket) => !socket.destroyed)).toHaveLength(1);
  expect(needed.filter((one) => one.deref())).toHaveLength(0);
  answer.close();
});

test('an open stream does not keep the bytes of its head', async () => {
  service = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
  upstream = createUpstream(new URL(service.url));
  const { answer } = await send();
  answer.read({ data() {}, end() {}, broken() {} });
  await whenCollected(heads);
  expect(service.sockets.filter((socket) => !socket.destroyed)).toHaveLength(1);
  expect(heads).toHaveLength(1);
  expect(heads.filter((one) => one.deref())).toHaveLength(0);
  answer.close();
});
