import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { bodyOf } from '../../src/relay/upstream/answer-arrival.ts';
import { createUpstream, type Upstream } from '../../src/relay/upstream/send.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

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

function send(onDelayed: () => Promise<void>, signal = NEVER) {
  return upstream.send(REQUEST, { signal, onDelayed, onSent: () => void sent++ });
}

/** Sends a message while the process is busy, so that it is delayed. */
function sendDelayed(onDelayed: () => Promise<void>, signal = NEVER) {
  const answer = send(onDelayed, signal);
  const until = performance.now() + 20;
  while (performance.now() < until);
  return answer;
}

/** Opens a connection that is kept for the next message. */
async function keepConnection(): Promise<void> {
  await bodyOf(await send(async () => {})).toArray();
  sent = 0;
}

const CONNECTIONS: [string, () => Promise<void>][] = [
  ['a new', async () => {}],
  ['a kept', keepConnection],
];

test('messages that are not delayed are sent without a call of onDelayed', async () => {
  let asked = 0;
  // A busy machine may delay some.
  for (let n = 0; n < 20; n++) await bodyOf(await send(async () => void asked++)).toArray();
  expect(asked).toBeLessThan(20);
  expect(sent).toBe(20);
});

test.each(CONNECTIONS)(
  'no byte of a message that was delayed on %s connection is sent before onDelayed resolves',
  async (_what, prepare) => {
    await prepare();
    const before = service.requests.length;
    let allow = () => {};
    const allowed = new Promise<void>((resolve) => {
      allow = resolve;
    });
    let asked = 0;
    const answer = sendDelayed(() => {
      asked++;
      return allowed;
    });
    await until(() => asked > 0);
    await sleep(50);
    expect(service.requests).toHaveLength(before);
    expect(sent).toBe(0);
    allow();
    expect((await answer).status).toBe(200);
    await bodyOf(await answer).toArray();
    expect([asked, sent]).toEqual([1, 1]);
    expect(service.sockets).toHaveLength(1);
  },
);

test.each(CONNECTIONS)(
  'if onDelayed rejects on %s connection, the next message can use the connection',
  async (_what, prepare) => {
    await prepare();
    const before = service.requests.length;
    await expect(sendDelayed(() => Promise.reject(REFUSED))).rejects.toBe(REFUSED);
    expect(service.requests).toHaveLength(before);
    await keepConnection();
    expect(service.sockets).toHaveLength(1);
  },
);

test('a message that is stopped during onDelayed gives its connection back', async () => {
  await keepConnection();
  const stop = new AbortController();
  const answer = sendDelayed(async () => stop.abort('stopped'), stop.signal);
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

test('onDelayed is called again if the connection is lost and the message is delayed on the next one', async () => {
  let asked = 0;
  const answer = await sendDelayed(async () => {
    asked++;
    if (asked > 1) return;
    await until(() => service.sockets.length > 0);
    for (const socket of service.sockets) socket.destroy();
    await sleep(50);
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
