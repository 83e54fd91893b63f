import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { Problem } from '../../src/errors.ts';
import { clientAddress } from '../../src/http/client-address.ts';
import { abortWhenLeft } from '../../src/http/client-connection.ts';
import { createLogger } from '../../src/logger.ts';
import { abortableSleep } from '../../src/pace/abortable-sleep.ts';
import type { AttemptCounts } from '../../src/pace/attempts.ts';
import { loginAttempts } from '../../src/pace/login-attempts.ts';
import { memoryAttempts } from '../../src/pace/memory-attempts.ts';
import { createQueues, limitConcurrency } from '../../src/pace/queues.ts';
import { redisAttempts } from '../../src/pace/redis-attempts.ts';
import { memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { route } from '../../src/routes/route.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { type Answer, call, expectProblem } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import {
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const WINDOW_MS = 10 * 60_000;

let stage: TestApp;
let clock: number;
/** The passwords that were or are being checked, and the functions that end the slow checks. */
let checked: string[];
let slow: ((right: boolean) => void)[];
let arrived: number;
let now: jest.SpiedFunction<typeof Date.now>;

interface StartOptions {
  readonly counts: AttemptCounts;
  readonly windowMs?: number;
  readonly maxWaitMs?: number;
}

/** Starts a login whose outcome is determined by the request's `X-Password`. */
async function open({ counts, windowMs = WINDOW_MS, ...more }: StartOptions): Promise<TestApp> {
  const limit = requestLimits(memoryCounts, createLogger('silent'));
  const limits = { maxConcurrentChecks: 2, maxFailures: 10, maxFailuresPerAddress: 30, windowMs, ...more };
  const attempts = loginAttempts(limit, counts, limits);
  const check = async (password: string) => {
    checked.push(password);
    // So that simultaneous sign-ins overlap.
    await new Promise((resolve) => setImmediate(resolve));
    if (password === 'unavailable') throw new Problem('session_store_unavailable', 'Away.');
    const right =
      password === 'slow' ? await new Promise<boolean>((end) => slow.push(end)) : password === 'right';
    return right ? 'ok' : undefined;
  };
  return startTestApp((app) => {
    app.set('trust proxy', true);
    route(app, '/', {
      async post(req, res) {
        const source = { address: clientAddress(req), account: String(req.headers['x-account']) };
        await attempts.refuse(req, res, source);
        arrived += 1;
        const { signal } = abortWhenLeft(res);
        const result = await attempts.attempt(source, () => check(String(req.headers['x-password'])), signal);
        signal.throwIfAborted();
        if (!result) throw new Problem('invalid_credentials', 'Wrong.');
        res.end();
      },
    });
  });
}
const start = async (options: StartOptions) => {
  stage = await open(options);
};
beforeEach(() => {
  checked = [];
  slow = [];
  arrived = 0;
  clock = Date.now();
  now = jest.spyOn(Date, 'now').mockImplementation(() => clock);
});
afterEach(async () => {
  now.mockRestore();
  await stage.close();
  // Each unfinished check keeps a timer.
  for (const end of slow) end(true);
});

const attempt = (account: string, from: string, password = 'wrong', { port } = stage) =>
  call(port, '/', {
    method: 'POST',
    headers: { 'X-Account': account, 'X-Forwarded-For': from, 'X-Password': password },
  });

/** After it, the login has read what was sent to it before, and which clients have left. */
const oneRoundTrip = () => call(stage.port, '/nothing');

async function fail(times: number, each: (n: number) => [account: string, from: string]): Promise<void> {
  const answers = await Promise.all(Array.from({ length: times }, (_, n) => attempt(...each(n))));
  expect(answers.map(({ status }) => status)).toEqual(Array(times).fill(401));
}

const atOnce = (count: number, of: (n: number) => [account: string, from: string, password?: string]) =>
  Promise.all(Array.from({ length: count }, (_, n) => attempt(...of(n))));
const statusesOf = (answers: readonly Answer[]) => answers.map(({ status }) => status);

/** Tests for both stores of failures. */
function contract(): void {
  test.each<[string, number, (n: number) => [string, string], string[][]]>([
    [
      'of one account',
      10,
      (n) => ['ada', `192.0.2.${n}`],
      [
        ['ada', '198.51.100.1'],
        ['bob', '192.0.2.1'],
      ],
    ],
    // An office may have one address.
    [
      'from one address',
      30,
      (n) => [`user${n}`, '192.0.2.1'],
      [
        ['ada', '192.0.2.1'],
        ['user1', '192.0.2.2'],
      ],
    ],
  ])(
    'of wrong passwords %s that come at once, %i are checked, and then not even a right one',
    async (...row) => {
      const [, most, of, [blocked, free]] = row;
      const answers = await atOnce(60, of);
      expect(checked).toHaveLength(most);
      expect(answers.filter(({ status }) => status === 401)).toHaveLength(most);
      answers.push(await attempt(...(blocked as [string, string]), 'right'));
      for (const answer of answers.filter(({ status }) => status !== 401)) {
        expectProblem(answer, 429, 'too_many_attempts');
        const seconds = Number(answer.headers['retry-after']);
        expect(seconds).toBeGreaterThan(WINDOW_MS / 1000 - 60);
        expect(seconds).toBeLessThanOrEqual(WINDOW_MS / 1000);
      }
      expect((await attempt(...(free as [string, string]), 'right')).status).toBe(200);
    },
  );

  test('right passwords that come at once succeed, also after 9 failures, which still count', async () => {
    const answers = await atOnce(60, (n) => [n % 2 ? 'ada' : `user${n}`, '192.0.2.1', 'right']);
    await fail(9, () => ['ada', '192.0.2.1']);
    answers.push(...(await atOnce(20, () => ['ada', '192.0.2.1', 'right'])));
    expect(statusesOf(answers)).toEqual(Array(80).fill(200));
    await fail(1, () => ['ada', '192.0.2.1']);
    expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
  });

  test.each([
    ['checked if it succeeds', true, [200, 200]],
    ['refused if it fails', false, [401, 429]],
  ])(
    'a sign-in for which another one has the last place waits for it, and is %s',
    async (_then, right, then) => {
      await fail(9, (n) => ['ada', `192.0.2.${n}`]);
      const first = attempt('ada', '192.0.2.20', 'slow');
      await until(() => slow.length === 1);
      const second = attempt('ada', '192.0.2.21', 'right');
      // Its client leaves while it waits.
      const leaving = rawClient(stage.port, rawMessage({ path: '/', headers: ['X-Account: ada'] }));
      await until(() => arrived === 12);
      leaving.socket.destroy();
      expect((await attempt('bob', '192.0.2.22', 'right')).status).toBe(200);
      // That of bob too, but not the second one.
      expect(checked).toHaveLength(11);
      slow[0]?.(right);
      expect(statusesOf([await first, await second])).toEqual(then);
      expect(checked).toHaveLength(right ? 12 : 11);
    },
  );

  test('attempts do not count as failed that ended with a fault, or whose client left before the check', async () => {
    for (let n = 0; n < 12; n += 1)
      expect((await attempt('ada', '192.0.2.1', 'unavailable')).status).toBe(503);
    const busy = [1, 2].map((n) => attempt('bob', `192.0.2.${n}`, 'slow'));
    await until(() => slow.length === 2);
    for (let n = 0; n < 12; n += 1) {
      const leaving = rawClient(stage.port, rawMessage({ path: '/', headers: ['X-Account: ada'] }));
      await until(() => arrived === n + 15);
      leaving.socket.destroy();
    }
    await oneRoundTrip();
    for (const end of slow) end(true);
    await Promise.all(busy);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    expect(checked.slice(12)).toEqual(['slow', 'slow', 'right']);
  });

  test('a wrong password counts even if its client has left before the answer', async () => {
    for (let n = 0; n < 10; n += 1) {
      const headers = ['X-Account: ada', 'X-Password: slow'];
      const leaving = rawClient(stage.port, rawMessage({ path: '/', headers }));
      await until(() => slow.length === n + 1);
      leaving.socket.destroy();
      await leaving.closed;
      await oneRoundTrip();
      slow[n]?.(false);
    }
    expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
  });
}

describe('sign-in attempts counted in memory:', () => {
  beforeEach(() => start({ counts: memoryAttempts }));
  contract();

  test('failures are forgotten exactly after Retry-After', async () => {
    const retryAfter = async () => (await attempt('ada', '192.0.2.1', 'right')).headers['retry-after'];
    await fail(1, () => ['ada', '192.0.2.1']);
    clock += 60_000;
    await fail(9, () => ['ada', '192.0.2.1']);
    const left = (WINDOW_MS - 60_000) / 1000;
    expect(await retryAfter()).toBe(String(left));
    clock += 500;
    // Rounded up, so that a client that waits this long is not too early.
    expect(await retryAfter()).toBe(String(left));
    clock += left * 1000 - 501;
    expect(await retryAfter()).toBe('1');
    clock += 1;
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });
});

describeWithRedis('sign-in attempts counted in Redis:', () => {
  let server: RedisServer;
  let redis: Redis;
  beforeAll(async () => {
    server = await startRedis();
    redis = await connected(server.url);
  });
  beforeEach(() => start({ counts: redisAttempts(redis) }));
  afterEach(() => server.command('FLUSHALL'));
  afterAll(() => {
    redis.close();
    stopRedis();
  });
  contract();

  test('failures are forgotten after their window', async () => {
    now.mockRestore();
    await stage.close();
    await start({ counts: redisAttempts(redis), windowMs: 1000 });
    const anyIs = async (status: number, password: string) =>
      (await atOnce(10, () => ['ada', '192.0.2.1', password])).some((answer) => answer.status === status);
    await until(() => anyIs(429, 'wrong'));
    await until(() => anyIs(200, 'right'));
  });

  test('an account name cannot be confused with an address, and long names do not fill Redis', async () => {
    await fail(10, (n) => ['192.0.2.1', `198.51.100.${n}`]);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    await attempt(`login-address:${'x'.repeat(5000)}`, '192.0.2.1');
    const keys = (await server.command('KEYS', '*')) as string[];
    expect(keys.length).toBeGreaterThan(10);
    for (const key of keys) {
      expect(key).toMatch(/^bot-relay:attempts:login-(address|account):[\w-]{43}$/);
      expect(await server.command('PTTL', key)).toBeGreaterThan(0);
    }
  });

  test('no key without expiry is left after Redis has forgotten the running attempts', async () => {
    // One after the other: either of two connections may be read first.
    const good = attempt('ada', '192.0.2.1', 'slow');
    await until(() => slow.length === 1);
    const bad = attempt('ada', '192.0.2.2', 'slow');
    await until(() => slow.length === 2);
    await server.command('FLUSHALL');
    slow[0]?.(true);
    expect((await good).status).toBe(200);
    // The end of the attempt was sent before.
    expect(await redis.answers()).toBe(true);
    expect(await server.command('DBSIZE')).toBe(0);
    slow[1]?.(false);
    expect((await bad).status).toBe(401);
    for (const key of (await server.command('KEYS', '*')) as string[])
      expect(await server.command('PTTL', key)).toBeGreaterThan(0);
  });

  test('two instances at once check 10 wrong passwords of an account, and every right one', async () => {
    const another = await connected(server.url);
    const there = await open({ counts: redisAttempts(another) });
    const both = (account: string, password: string) =>
      Promise.all(
        Array.from({ length: 80 }, (_, n) =>
          attempt(account, `192.0.2.${n}`, password, n % 2 ? there : stage),
        ),
      );
    expect(statusesOf(await both('bob', 'right'))).toEqual(Array(80).fill(200));
    checked = [];
    const statuses = statusesOf(await both('ada', 'wrong')).sort();
    expect(checked).toHaveLength(10);
    expect(statuses).toEqual([...Array(10).fill(401), ...Array(70).fill(429)]);
    await there.close();
    another.close();
  });

  test('running attempts of an instance that died end when their leases expire', async () => {
    const gone = await connected(server.url);
    const there = await open({ counts: redisAttempts(gone, 400) });
    const lost = Array.from({ length: 10 }, (_, n) =>
      attempt('ada', `192.0.2.${n}`, 'slow', there).catch(() => 'cut'),
    );
    const key = `bot-relay:attempts:login-account:${keyPart('ada')}`;
    await until(async () => (await server.command('HLEN', key)) === 10);
    gone.close();
    await there.close();
    await Promise.all(lost);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });

  test('while Redis is away, no password is checked, and a wrong one cannot be counted: the answer is 503', async () => {
    await stage.close();
    const wire = await faultProxy(server.url);
    const lost = await connected(wire.url);
    await start({ counts: redisAttempts(lost) });
    const wrong = attempt('ada', '192.0.2.1', 'slow');
    await until(() => slow.length === 1);
    wire.cut();
    slow[0]?.(false);
    for (const answer of [
      await wrong,
      ...(await atOnce(2, (n) => ['ada', '192.0.2.1', n ? 'wrong' : 'right'])),
    ])
      expectProblem(answer, 503, 'session_store_unavailable');
    expect(checked).toEqual(['slow']);
    wire.mend();
    await until(async () => (await attempt('ada', '192.0.2.1', 'right')).status === 200);
    lost.close();
    wire.close();
  });
});

describe('the queue of sign-ins', () => {
  /** Ends so many slow checks, as soon as each has begun. */
  async function endSlow(count: number) {
    for (let done = 0; done < count; done += 1) {
      await until(() => slow.length > done);
      slow[done]?.(true);
    }
  }

  test('has a limit: a sign-in beyond it gets Retry-After, and succeeds when there is room', async () => {
    await start({ counts: memoryAttempts });
    const all = atOnce(100, (n) => [`user${n}`, `192.0.${n}.1`, 'slow']);
    await until(() => arrived === 100);
    const refused = await attempt('ada', '192.0.2.1', 'right');
    expectProblem(refused, 503, 'busy');
    expect(refused.headers['retry-after']).toBe('10');
    expect(slow).toHaveLength(2);
    await endSlow(100);
    expect(statusesOf(await all)).toEqual(Array(100).fill(200));
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });

  test('is not filled by one address, so that others find a place', async () => {
    await start({ counts: memoryAttempts });
    const all = atOnce(120, (n) => [`user${n}`, '192.0.2.1', 'slow']);
    await until(() => arrived === 75);
    expectProblem(await attempt('bob', '192.0.2.1', 'right'), 503, 'busy');
    const other = attempt('ada', '198.51.100.1', 'right');
    await endSlow(75);
    expect((await other).status).toBe(200);
    expect(statusesOf(await all).sort()).toEqual([...Array(75).fill(200), ...Array(45).fill(503)]);
  });

  test('keeps no place for a client that has left', async () => {
    await start({ counts: memoryAttempts });
    const first = [1, 2].map((n) => attempt(`user${n}`, `192.0.2.${n}`, 'slow'));
    await until(() => slow.length === 2);
    const message = rawMessage({ path: '/', headers: ['X-Account: bob', 'X-Password: left'] });
    for (let round = 0; round < 3; round += 1) {
      const clients = Array.from({ length: 90 }, () => rawClient(stage.port, message));
      // An address may have 75 in the queue; the others are refused.
      await until(() => clients.filter(({ text }) => text() !== '').length === 15);
      for (const { socket } of clients) socket.destroy();
      await Promise.all(clients.map(({ closed }) => closed));
    }
    const last = attempt('ada', '192.0.2.1', 'right');
    await oneRoundTrip();
    for (const end of slow) end(true);
    expect(statusesOf(await Promise.all([...first, last]))).toEqual([200, 200, 200]);
    expect(checked).toEqual(['slow', 'slow', 'right']);
  });

  test.each([
    ['for running checks', 'bob', 2],
    ['for sign-ins of the same account', 'ada', 10],
  ])('ends after some time for a sign-in that waits %s', async (_why, account, count) => {
    await start({ counts: memoryAttempts, maxWaitMs: 300 });
    const first = atOnce(count, (n) => [account, `192.0.2.${n}`, 'slow']);
    await until(() => slow.length === 2);
    expectProblem(await attempt('ada', '198.51.100.1', 'right'), 503, 'busy');
    for (const end of slow) end(true);
    expect(statusesOf(await first).sort()).toEqual([200, 200, ...Array(count - 2).fill(503)]);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });
});

/** Lets all promises settle that wait for nothing else. */
const settled = () => new Promise((resolve) => setImmediate(resolve));
const stepsOf = (...kinds: string[]) =>
  fc.array(
    fc.record({
      kind: fc.constantFrom(...kinds),
      key: fc.constantFrom('a', 'b'),
      which: fc.nat(),
      isAborted: fc.boolean(),
      /** Whether the next step comes in the same moment. */
      atOnce: fc.boolean(),
    }),
    { maxLength: 40, size: 'max' },
  );

/** A caller, and what has become of it. */
interface Caller {
  readonly stop: AbortController;
  state: unknown;
  end(how?: unknown): void;
}
const newCaller = (): Caller => ({ stop: new AbortController(), state: 'waits', end: () => {} });

test('of each queue, the first has its turn, and the others follow in their order when it leaves or they give up', () =>
  fc.assert(
    fc.asyncProperty(stepsOf('enter', 'enter', 'leave', 'abort'), async (steps) => {
      const queues = createQueues();
      const all = { a: [] as Caller[], b: [] as Caller[] };
      for (const { kind, key, which, isAborted, atOnce } of steps) {
        const queue = all[key as 'a'];
        const [first] = queue;
        if (kind === 'enter') {
          const caller = newCaller();
          if (isAborted) caller.stop.abort('stopped');
          else queue.push(caller);
          const entered = queues.enter(key, caller.stop.signal).then(
            (leave) => Object.assign(caller, { state: 'in', end: leave }),
            (reason) => Object.assign(caller, { state: reason }),
          );
          if (isAborted) expect(await entered).toMatchObject({ state: 'stopped' });
        } else if (kind === 'leave' && first?.state === 'in') {
          first.end();
          queue.shift();
        } else if (kind === 'abort' && queue.length > 0) {
          const at = which % queue.length;
          const caller = queue[at] as Caller;
          caller.stop.abort('left');
          // Whose turn it is stays until it leaves.
          if (at > 0) {
            queue.splice(at, 1);
            await settled();
            expect(caller.state).toBe('left');
          }
        }
        if (!atOnce) await settled();
        expect([queues.length('a'), queues.length('b')]).toEqual([all.a.length, all.b.length]);
        if (atOnce) continue;
        for (const callers of Object.values(all))
          expect(callers.map(({ state }) => state)).toEqual(callers.map((_, at) => (at ? 'waits' : 'in')));
      }
    }),
  ));

test('no more work runs at once than may, and what waits runs in its order, whatever fails or gives up', () =>
  fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3 }),
      stepsOf('start', 'start', 'end', 'fail', 'abort'),
      async (max, steps) => {
        const run = limitConcurrency(max);
        const callers: Caller[] = [];
        for (const { kind, which, isAborted } of steps) {
          const caller = callers[which % callers.length];
          if (kind === 'start') {
            const one = newCaller();
            if (isAborted) one.stop.abort('left');
            else callers.push(one);
            const work = () =>
              new Promise((resolve, reject) => {
                one.state = 'runs';
                one.end = (how) => (how === 'fail' ? reject(how) : resolve(how));
              });
            const result = run(work, one.stop.signal);
            const over = result.catch((reason) => reason).then((how) => Object.assign(one, { state: how }));
            if (isAborted) expect(await over).toMatchObject({ state: 'left' });
          } else if (kind === 'abort') caller?.stop.abort('left');
          else if (caller?.state === 'runs') caller.end(kind);
          const wasRunning = caller?.state === 'runs';
          await settled();
          if (caller && kind !== 'start' && (kind === 'abort' ? !wasRunning : wasRunning)) {
            expect(caller.state).toBe(kind === 'abort' ? 'left' : kind);
            callers.splice(callers.indexOf(caller), 1);
          }
          const states = callers.map((_, at) => (at < max ? 'runs' : 'waits'));
          expect(callers.map(({ state }) => state)).toEqual(states);
        }
      },
    ),
  ));

test('a wait is not even a little too short, and ends with the reason of its signal', async () => {
  for (let n = 0; n < 20; n++) {
    const from = performance.now();
    await abortableSleep(3.9, new AbortController().signal);
    expect(performance.now() - from).toBeGreaterThanOrEqual(3.9);
  }
  await expect(abortableSleep(600_000, AbortSignal.abort('left'))).rejects.toBe('left');
});
