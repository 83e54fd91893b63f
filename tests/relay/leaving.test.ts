import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { createUpstream, type SendUpstream } from '../../src/relay/send-upstream.ts';
import { until } from '../support/pair.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../support/raw-upstream.ts';

const REQUEST = { path: '/', headers: { 'content-length': '2' }, body: Buffer.from('{}') };
const ALWAYS = new AbortController().signal;
const REFUSED = new Problem('rate_limited', 'Not now.');

let service: RawUpstream;
let send: SendUpstream;
beforeEach(async () => {
  service = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
  send = createUpstream(new URL(service.url));
});
afterEach(() => service.close());

let sent = 0;
const onSent = () => void sent++;
beforeEach(() => {
  sent = 0;
});

/** Leaves a connection behind that is kept for the next message. */
async function keepConnection(): Promise<void> {
  const response = await send(REQUEST, { signal: ALWAYS, mayLeave: async () => {}, onSent });
  await response.toArray();
}

test('nothing of a message goes to the service before it may leave', async () => {
  let allow = () => {};
  const allowed = new Promise<void>((resolve) => {
    allow = resolve;
  });
  let asked = false;
  const mayLeave = () => {
    asked = true;
    return allowed;
  };
  const answer = send(REQUEST, { signal: ALWAYS, mayLeave, onSent });
  await until(() => asked);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(service.sockets.map(({ bytesRead }) => bytesRead)).toEqual([0]);
  expect(sent).toBe(0);
  allow();
  expect((await answer).statusCode).toBe(200);
  expect(sent).toBe(1);
});

test.each([
  ['a new', async () => {}],
  ['a kept', keepConnection],
])(
  'a message that may not leave on %s connection closes it, and is not tried again',
  async (_what, prepare) => {
    await prepare();
    const before = service.requests.length;
    let asked = 0;
    const mayLeave = async () => {
      asked++;
      throw REFUSED;
    };
    await expect(send(REQUEST, { signal: ALWAYS, mayLeave, onSent })).rejects.toBe(REFUSED);
    await until(() => service.sockets[0]?.closed === true);
    expect(asked).toBe(1);
    expect(service.sockets).toHaveLength(1);
    expect(service.requests).toHaveLength(before);
  },
);

test('a message that is stopped before it may leave closes its connection', async () => {
  await keepConnection();
  const stop = new AbortController();
  const answer = send(REQUEST, { signal: stop.signal, mayLeave: () => new Promise(() => {}), onSent });
  await new Promise((resolve) => setTimeout(resolve, 20));
  stop.abort('stopped');
  await expect(answer).rejects.toBe('stopped');
  await until(() => service.sockets[0]?.closed === true);
  expect(service.requests).toHaveLength(1);
});
