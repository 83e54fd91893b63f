import { getEventListeners } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { CANARY } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

/** How long a body may take to arrive, and how long the last bytes of a stream may take. */
const BODY_MS = 30_000;
const LAST_BYTES_MS = 5_000;
/** A time that no other timer uses. The deadline of the execution is later, and has the same timer. */
const RESPONSE_TIMEOUT_MS = 87_654;
const TIMES = {
  MAX_EXECUTION_MS: '98765',
  UPSTREAM_RESPONSE_TIMEOUT_MS: String(RESPONSE_TIMEOUT_MS),
};

let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

/** Counts the timers of `ms` that are set from now on, and those that are not cleared. */
function watchTimers() {
  const set = jest.spyOn(globalThis, 'setTimeout');
  const clear = jest.spyOn(globalThis, 'clearTimeout');
  return (ms: number) => {
    const timers = set.mock.calls.flatMap(([, after], n) =>
      after === ms ? [set.mock.results[n]?.value] : [],
    );
    const cleared = new Set<unknown>(clear.mock.calls.map(([timer]) => timer));
    return { set: timers.length, left: timers.filter((timer) => !cleared.has(timer)).length };
  };
}

describe('no timer is left of a message', () => {
  test.each([
    ['that was answered', `${STREAM_HEAD}${LAST_CHUNK}`, LAST_CHUNK],
    ['that was refused', plainAnswer('422 No', []), '"code":"upstream_refused"'],
    ['whose answer was not HTTP', 'no HTTP', '"code":"upstream_bad_response"'],
  ])('%s', async (_name, bytes, ending) => {
    pair = await startRelayAndUpstream((socket) => socket.end(bytes), TIMES);
    const timers = watchTimers();
    const message = rawMessage({ cookie: pair.cookie, headers: ['Expect: 100-continue'] });
    // The last byte comes late: a body that is here already has no timer.
    const client = rawClient(pair.relay.port, message.slice(0, -1));
    await client.waitFor('100 Continue');
    client.socket.write(message.slice(-1));
    await client.waitFor('HTTP/1.1 200 ');
    await client.waitFor(ending);
    await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    client.socket.destroy();
    for (const ms of [BODY_MS, RESPONSE_TIMEOUT_MS]) expect(timers(ms)).toEqual({ set: 1, left: 0 });
  });

  test('whose client left before the whole body had arrived', async () => {
    pair = await startRelayAndUpstream(() => {});
    const timers = watchTimers();
    const head = rawMessage({ cookie: pair.cookie, headers: ['Expect: 100-continue'] });
    const leaving = rawClient(pair.relay.port, head.slice(0, -1));
    await leaving.waitFor('100 Continue');
    expect(timers(BODY_MS)).toEqual({ set: 1, left: 1 });
    leaving.socket.destroy();
    await until(() => timers(BODY_MS).left === 0);
  });

  test('whose stream broke', async () => {
    pair = await startRelayAndUpstream((socket) => socket.end(`${STREAM_HEAD}ff\r\n`), TIMES);
    const timers = watchTimers();
    expect(await (await pair.relay.send(pair.cookie)).text()).toContain('upstream_stream_broken');
    await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    for (const ms of [RESPONSE_TIMEOUT_MS, LAST_BYTES_MS]) expect(timers(ms)).toEqual({ set: 1, left: 0 });
  });
});

test('an open stream has one abort listener, even if the message was sent twice', async () => {
  const keys = { UPSTREAM_API_KEYS: `${CANARY.secondKey},${CANARY.key}` };
  pair = await startRelayAndUpstream((socket, { all }) => {
    if (all('x-api-key')[0] === CANARY.key) socket.write(STREAM_HEAD);
    else socket.write(plainAnswer('401 No', []));
  }, keys);
  const add = jest.spyOn(pair.relay.open, 'add');
  const client = pair.ask();
  await client.waitFor('\r\n\r\n');
  const signal = (add.mock.calls[0] as [AbortController, string])[0].signal;
  const accepted = pair.upstream.sockets.at(-1) as Socket;
  accepted.write(chunk('data: a\n\n'));
  await client.waitFor('data: a');
  expect(getEventListeners(signal, 'abort')).toHaveLength(1);
  accepted.write(LAST_CHUNK);
  await until(() => pair.relay.open.count() === 0);
  await until(() => getEventListeners(signal, 'abort').length === 0);
});
