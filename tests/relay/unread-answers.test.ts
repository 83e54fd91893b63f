import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { bodyOf } from '../../src/relay/upstream/answer-arrival.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

let events: readonly string[];
/** Resolves when the system has taken the last answer. */
let written: Promise<void>;
let service: RawUpstream;
let upstream: Upstream;
beforeEach(async () => {
  service = await startRawUpstream((socket) => {
    const chunks = events.map((event) => chunk(event));
    const answer = Buffer.concat([Buffer.from(STREAM_HEAD), ...chunks, Buffer.from(LAST_CHUNK)]);
    written = new Promise((resolve) => socket.write(answer, () => resolve()));
  });
  upstream = createUpstream(new URL(service.url));
});
afterEach(async () => {
  upstream.close();
  await service.close();
});

const SMALL = ['data: a\n\n', 'data: b\n\n'];
const LARGE = ['a', 'b'].map((letter) => `data: ${letter.repeat(8192)}\n\n`);

/** Resolves when all has been read that the service has sent, and that is not held back. */
async function arrived(): Promise<void> {
  await written;
  for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
}

function send() {
  const request = { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') };
  const { signal } = new AbortController();
  return upstream.send(request, { signal, onDelayed: async () => {}, onSent: () => {} });
}

test.each([
  ['small', SMALL],
  ['large', LARGE],
])('an answer with %s events that is read late is whole', async (_size, those) => {
  events = those;
  const answer = await send();
  await arrived();
  expect(String(Buffer.concat(await bodyOf(answer).toArray()))).toBe(events.join(''));
});

test('an answer that has arrived whole keeps its connection until it is read, and closes it if it is not', async () => {
  events = SMALL;
  const [first, second] = [await send(), await send()];
  await arrived();
  expect(service.sockets).toHaveLength(2);
  first.close();
  await until(() => service.sockets[0]?.destroyed === true);
  expect(String(Buffer.concat(await bodyOf(second).toArray()))).toBe(events.join(''));
  await bodyOf(await send()).toArray();
  expect(service.sockets).toHaveLength(2);
});

test('a large answer is not read before its reader is there, nor while that pauses', async () => {
  events = SMALL;
  const before = await send();
  await arrived();
  await new Promise<void>((end) => before.read({ data: before.pause, end, broken() {} }));
  events = LARGE;
  const answer = await send();
  await arrived();
  expect(service.sockets).toHaveLength(1);
  // This is not about the connection, which the next answer has.
  before.pause();
  before.resume();
  const seen: string[] = [];
  const over = new Promise<void>((resolve) => {
    answer.read({
      data(bytes) {
        seen.push(String(bytes));
        answer.pause();
      },
      end: resolve,
      broken: (cause) => expect(cause).toBe(''),
    });
  });
  expect(seen).toEqual(LARGE.slice(0, 1));
  await arrived();
  expect(seen).toHaveLength(1);
  answer.resume();
  await until(() => seen.length > 1);
  expect(seen).toEqual(LARGE);
  answer.resume();
  await over;
});
