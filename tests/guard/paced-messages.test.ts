import type { Socket } from 'node:net';
import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import type { Reservation } from '../../src/pace/budgets.ts';
import { type Answer, call, expectProblem } from '../harness/clients/call.ts';
import { failureOf } from '../harness/clients/error-event.ts';
import { until } from '../harness/clock/until.ts';
import { type FaultProxy, faultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import {
  codeOf,
  DONE,
  range,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../harness/relay/numbered-messages.ts';
import { MESSAGE, OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/service/raw-upstream.ts';

const BOT = 'acme/helper';
/** Who waits here waits until the end of the test. */
const LONG = { RATE_LIMIT: '1', RATE_WINDOW_MS: '400000', RATE_MAX_WAIT_MS: '600000' };

const closings: (() => unknown)[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const close of closings.splice(0).reverse()) await close();
});
afterAll(() => stopRedis());

const busy = (retryAfter: string) => (socket: Socket) =>
  void socket.write(
    plainAnswer('429 Busy', ['Content-Type: application/json', `Retry-After: ${retryAfter}`], '{}'),
  );

interface Instances extends Pick<WithNumberedMessages, 'started' | 'upstream'> {
  readonly relays: readonly TestRelay[];
  /** The cookie of a user at each of them. */
  readonly cookies: readonly string[];
  /** Sends message `n` to one instance after the other. */
  send(n: number, init?: { cookie?: string; signal?: AbortSignal }): Promise<Response>;
  /** Sends a message that waits until its client leaves; resolves with the function for that, which resolves once its slot is given back. */
  sendWaiting(n: number): Promise<() => Promise<void>>;
  readonly wire: FaultProxy | undefined;
}

/** Whether the call with this number was answered with a slot. */
const isGranted = async ({ mock }: { mock: { results: { value: unknown }[] } }, n: number) =>
  ((await mock.results.at(n)?.value) as Reservation | undefined)?.state === 'granted';

/** Starts so many relays for one bot service, which gives the first messages these answers. */
async function start(
  shared: boolean,
  environment: Record<string, string>,
  answers: ((socket: Socket) => void)[] = [],
): Promise<Instances> {
  const wire = shared ? await faultProxy((await startRedis()).url) : undefined;
  const all = { RATE_MAX_WAIT_MS: '60000', ...environment, ...(wire && { REDIS_URL: wire.url }) };
  const pair = await startWithNumberedMessages(all, (socket) => {
    (answers.shift() ?? (() => void socket.write(DONE)))(socket);
  });
  closings.push(() => wire?.close(), pair.close);
  const relays: TestRelay[] = [pair.relay];
  if (shared) relays.push(await startRelay(pair.upstream.url, all));
  for (const relay of relays.slice(1)) closings.push(relay.close);
  const cookies = [pair.cookie];
  for (const relay of relays.slice(1)) cookies.push(await relay.signIn());
  const send: Instances['send'] = (n, { cookie, signal } = {}) => {
    const at = n % relays.length;
    const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
    return (relays[at] as TestRelay).send(cookie ?? (cookies[at] as string), {
      body,
      ...(signal && { signal }),
    });
  };
  return {
    ...{ started: pair.started, upstream: pair.upstream, relays, cookies, wire, send },
    async sendWaiting(n) {
      const { budgets } = (relays[n % relays.length] as TestRelay).parts;
      const [reserve, cancel] = [jest.spyOn(budgets, 'reserve'), jest.spyOn(budgets, 'cancel')];
      const leaving = new AbortController();
      const left = send(n, { signal: leaving.signal }).catch(() => 'left');
      await until(() => isGranted(reserve, -1));
      return async () => {
        leaving.abort();
        expect(await left).toBe('left');
        await until(() => cancel.mock.calls.length === 1);
        await cancel.mock.results[0]?.value;
        jest.restoreAllMocks();
      };
    },
  };
}

const pathOf = (namespace: string, bot: string) => `/generic/ns/${namespace}/bot-provider/${bot}/message/sse`;

/** Tests for both stores of budgets; if they are shared, at two instances. */
function contract(shared: boolean): void {
  test('each endpoint has a budget of its own for all users, sessions and spellings, which every answer tells', async () => {
    const limits = { RATE_LIMIT: '2', RATE_WINDOW_MS: '600000', BOTS: 'acme/*,other/helper' };
    const { relays, cookies, upstream } = await start(shared, limits);
    const other = await (relays[0] as TestRelay).signIn(OTHER_USER);
    let sent = 0;
    const send = (path: string, cookie?: string): Promise<Answer> => {
      const at = cookie === undefined ? sent++ % relays.length : 0;
      const headers = { Cookie: cookie ?? (cookies[at] as string), 'Content-Type': 'application/json' };
      const body = JSON.stringify({ ...JSON.parse(MESSAGE), n: sent });
      return call((relays[at] as TestRelay).port, path, { method: 'POST', headers, body });
    };
    const first = await send(pathOf('acme', 'spelled'));
    expect([first.status, first.headers]).toMatchObject([
      200,
      { ratelimit: '"endpoint";r=1;t=600', 'ratelimit-policy': '"endpoint";q=2;w=600' },
    ]);
    expect(first.headers).not.toHaveProperty('retry-after');
    const second = await send(pathOf('acme', '%73pelled'));
    expect(second).toMatchObject({ status: 200, headers: { ratelimit: '"endpoint";r=0;t=600' } });
    for (const path of [pathOf('%61cme', 'spelle%64'), pathOf('acme', 'spelled')]) {
      for (const cookie of [undefined, other]) {
        const refused = await send(path, cookie);
        expectProblem(refused, 429, 'rate_limited', { retryable: 'new message' });
        expect(refused.headers.ratelimit).toMatch(/^"endpoint";r=0;t=(600|59\d)$/);
        expect(refused.headers['ratelimit-policy']).toBe('"endpoint";q=2;w=600');
        expect(refused.headers['retry-after']).toMatch(/^(60[01]|59\d)$/);
      }
    }
    expect((await send(pathOf('acme', 'another'))).headers.ratelimit).toMatch(/r=1/);
    expect((await send(pathOf('other', 'helper'))).headers.ratelimit).toMatch(/r=1/);
    expect(upstream.requests).toHaveLength(4);
  });

  test('of messages that come at once and may not wait, as many are sent as the budget has', async () => {
    const { send } = await start(shared, { ...LONG, RATE_MAX_WAIT_MS: '0' });
    const answers = await Promise.all([send(0), send(1), send(2)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 429, 429]);
  });

  test('a message whose client leaves while it waits is never sent, and its slot goes to the next', async () => {
    const { relays, send, sendWaiting, started } = await start(shared, LONG);
    await send(0);
    await (await sendWaiting(1))();
    const line = await relays.at(-1)?.logLine(({ outcome }) => outcome === 'client_closed');
    expect(line).toMatchObject({ level: 'info', status: 499 });
    // Behind another message it would have to wait for two windows, and be refused.
    await (await sendWaiting(2))();
    expect(started()).toEqual([0]);
    const faults = relays.flatMap(({ logs }) =>
      logs.filter(({ level }) => level !== 'info' && level !== 'debug'),
    );
    expect(faults).toEqual([]);
  });
}

describe('with budgets in memory,', () => {
  contract(false);

  test('messages beyond the limit wait for their slots, and all are sent', async () => {
    const { relays, send, started } = await start(false, { RATE_LIMIT: '3', RATE_WINDOW_MS: '100' });
    const other = await (relays[0] as TestRelay).signIn(OTHER_USER);
    const sent = range(10).map((n) => send(n, n % 2 ? {} : { cookie: other }));
    expect((await Promise.all(sent)).map(({ status }) => status)).toEqual(range(10).map(() => 200));
    expect(started().sort((a, b) => a - b)).toEqual(range(10));
  });

  test('a message that waits ends with its session, or with the grace of a shutdown, and is never sent', async () => {
    const { relays, cookies, send, started } = await start(false, LONG);
    const [{ url, parts }] = relays as [TestRelay];
    const { open, budgets } = parts;
    await send(0);
    const reserve = jest.spyOn(budgets, 'reserve');
    const waits = (count: number) => until(() => isGranted(reserve, count - 1));
    const ended = send(2);
    await waits(1);
    await fetch(`${url}/auth/logout`, { method: 'POST', headers: { Cookie: cookies[0] as string } });
    const answer = await ended;
    expect([answer.status, await codeOf(answer)]).toEqual([401, 'session_ended']);
    const late = send(4, { cookie: await (relays[0] as TestRelay).signIn() });
    await waits(2);
    open.endAll(new Problem('draining', 'Shutting down.'));
    const drained = await late;
    expect([drained.status, await codeOf(drained)]).toEqual([503, 'draining']);
    expect(started()).toEqual([0]);
  });

  test('a message that the service has refused with 429 is sent again after Retry-After', async () => {
    const { relays, send, started } = await start(false, { RATE_WINDOW_MS: '100' }, [busy('1')]);
    expect((await send(0)).status).toBe(200);
    expect(started()).toEqual([0, 0]);
    const line = await relays[0]?.logLine(({ bot }) => bot === BOT);
    expect(line).toMatchObject({ outcome: 'ok', upstreamStatus: 200 });
  });

  test.each([
    ['20', 20],
    // A service that asks for a day usually takes messages again much earlier.
    ['86400', 60],
  ])(
    'it fails if Retry-After is %s and it may not wait so long, and no other message leaves',
    async (asked, told) => {
      const limits = { RATE_LIMIT: '100', RATE_MAX_WAIT_MS: '10000' };
      const { send, started } = await start(false, limits, [busy(asked)]);
      expect(await failureOf(await send(0))).toMatchObject({
        ...{ status: 429, code: 'upstream_rate_limited', retryAfter: told },
      });
      for (const n of [1, 2]) {
        const other = await send(n);
        expect([other.status, await codeOf(other)]).toEqual([429, 'rate_limited']);
        expect(Number(other.headers.get('retry-after'))).toBeGreaterThan(told - 10);
        expect(Number(other.headers.get('retry-after'))).toBeLessThanOrEqual(told);
      }
      expect(started()).toEqual([0]);
    },
  );

  test('it is not sent again if its client leaves during the pause, and its slot is given back', async () => {
    const { relays, send, started } = await start(false, { RATE_MAX_WAIT_MS: '120000' }, [busy('60')]);
    const { budgets } = (relays[0] as TestRelay).parts;
    const [pause, cancel] = [jest.spyOn(budgets, 'pause'), jest.spyOn(budgets, 'cancel')];
    const leaving = new AbortController();
    const left = send(0, { signal: leaving.signal }).catch(() => 'left');
    await until(() => pause.mock.calls.length === 1);
    await pause.mock.results[0]?.value;
    leaving.abort();
    expect(await left).toBe('left');
    await until(() => cancel.mock.calls.length === 1);
    expect(started()).toEqual([0]);
  });

  test('all that the budget allows go when a pause is over', async () => {
    const { relays, send, started } = await start(false, { RATE_LIMIT: '100' });
    await relays[0]?.parts.budgets.pause(BOT, 200);
    const answers = await Promise.all(range(8).map((n) => send(n)));
    expect(answers.map(({ status }) => status)).toEqual(range(8).map(() => 200));
    expect(started()).toHaveLength(8);
  });
});

describeWithRedis('with budgets in Redis, at two instances,', () => {
  contract(true);

  test('a waiting message is not started after Redis went away', async () => {
    const { wire, relays, send, started } = await start(true, { ...LONG, RATE_WINDOW_MS: '2000' });
    await send(0);
    const reserve = jest.spyOn((relays[0] as TestRelay).parts.budgets, 'reserve');
    const waiting = send(2);
    await until(() => isGranted(reserve, 0));
    wire?.cut();
    expect((await waiting).status).toBe(503);
    expect(started()).toEqual([0]);
  });
});
