import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { bodyOf } from '../../src/relay/upstream/answer-body.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import { until } from '../support/pair.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../support/raw-upstream.ts';

const REQUEST = { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') };
const NEVER = new AbortController().signal;
const REFUSED = new Problem('rate_limited', 'Not now.');

let service: RawUpstream;
let upstream: Upstream;
let sent: number;
beforeEach(async () => {
  sent = 0;
  service = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
  upstream = createUpstream(new URL(service.url));
});
afterEach(async () => {
  upstream.close();
  await service.close();
});

function send(mayLeave: () => Promise<void>, signal = NEVER) {
  return upstream.send(REQUEST, { signal, mayLeave, onSent: () => void sent++ });
}

/** Sends a message while the process is busy, so that it is held up on its way. */
function sendHeldUp(mayLeave: () => Promise<void>, signal = NEVER) {
  const answer = send(mayLeave, signal);
  const until = performance.now() + 20;
  while (performance.now() < until);
  return answer;
}

/** Leaves a connection behind that is kept for the next message. */
async function keepConnection(): Promise<void> {
  await bodyOf(await send(async () => {})).toArray();
  sent = 0;
}

const CONNECTIONS: [string, () => Promise<void>][] = [
  ['a new', async () => {}],
  ['a kept', keepConnection],
];

test('messages that are not held up leave without being asked again', async () => {
  let asked = 0;
  // A busy machine may hold up some.
  for (let n = 0; n < 20; n++) await bodyOf(await send(async () => void asked++)).toArray();
  expect(asked).toBeLessThan(20);
  expect(sent).toBe(20);
});

test.each(CONNECTIONS)(
  'nothing of a message that was held up on %s connection goes before it may leave',
  async (_what, prepare) => {
    await prepare();
    const before = service.requests.length;
    let allow = () => {};
    const allowed = new Promise<void>((resolve) => {
      allow = resolve;
    });
    let asked = 0;
    const answer = sendHeldUp(() => {
      asked++;
      return allowed;
    });
    await until(() => asked > 0);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(service.requests).toHaveLength(before);
    expect(sent).toBe(0);
    allow();
    expect((await answer).status).toBe(200);
    expect([asked, sent]).toEqual([1, 1]);
    expect(service.sockets).toHaveLength(1);
  },
);

test.each(CONNECTIONS)(
  'a message that may not leave on %s connection leaves it for the next one',
  async (_what, prepare) => {
    await prepare();
    const before = service.requests.length;
    await expect(sendHeldUp(() => Promise.reject(REFUSED))).rejects.toBe(REFUSED);
    expect(service.requests).toHaveLength(before);
    await keepConnection();
    expect(service.sockets).toHaveLength(1);
  },
);

test('a message that is stopped before it may leave gives its connection back', async () => {
  await keepConnection();
  const stop = new AbortController();
  const answer = sendHeldUp(async () => stop.abort('stopped'), stop.signal);
  await expect(answer).rejects.toBe('stopped');
  expect(service.requests).toHaveLength(1);
  expect(service.sockets).toHaveLength(1);
});

test('a message that is stopped while it is sent closes its connection', async () => {
  const stop = new AbortController();
  const answer = send(async () => {}, stop.signal);
  stop.abort('stopped');
  await expect(answer).rejects.toBe('stopped');
  await until(() => service.sockets.every(({ destroyed }) => destroyed));
  expect(service.requests).toHaveLength(0);
});

test('a message whose connection is lost before it may leave is asked again if the next one holds it up', async () => {
  let asked = 0;
  const answer = await sendHeldUp(async () => {
    asked++;
    if (asked > 1) return;
    await until(() => service.sockets.length > 0);
    for (const socket of service.sockets) socket.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    process.nextTick(() => {
      const from = performance.now();
      while (performance.now() - from < 20);
    });
  });
  expect(asked).toBe(2);
  await bodyOf(answer).toArray();
  expect(service.requests).toHaveLength(1);
  expect(sent).toBe(1);
});
