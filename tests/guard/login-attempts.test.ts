import { request } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { clientAddress } from '../../src/http/client-address.ts';
import { abortWhenLeft } from '../../src/http/client-connection.ts';
import { createLogger } from '../../src/logger.ts';
import type { AttemptCounts } from '../../src/pace/attempts.ts';
import { loginAttempts } from '../../src/pace/login-attempts.ts';
import { memoryAttempts } from '../../src/pace/memory-attempts.ts';
import { redisAttempts } from '../../src/pace/redis-attempts.ts';
import { memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { route } from '../../src/routes/route.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { type FaultProxy, faultProxy } from '../harness/faults/fault-proxy.ts';
import {
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
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
    // Long enough for simultaneous sign-ins to overlap.
    await sleep(5);
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

/** Tests for both stores of failures. */
function contract(): void {
  describe('10 failed sign-ins', () => {
    test('of one account, from any addresses, block it even for the right password', async () => {
      await fail(10, (n) => ['ada', `192.0.2.${n}`]);
      expectProblem(await attempt('ada', '198.51.100.1', 'right'), 429, 'too_many_attempts');
      expect((await attempt('bob', '198.51.100.1', 'right')).status).toBe(200);
    });

    test('from one address, for several accounts, do not block it, since an office may have one address', async () => {
      await fail(10, (n) => [`user${n}`, '192.0.2.1']);
      expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    });
  });

  describe('as many failed sign-ins as an address may have', () => {
    test('for any accounts, block the address even for the right password', async () => {
      await fail(30, (n) => [`user${n}`, '192.0.2.1']);
      expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
      expect((await attempt('ada', '192.0.2.2', 'right')).status).toBe(200);
    });

    test('from one IPv6 /56 count as from one address', async () => {
      await fail(30, (n) => [`user${n}`, `2001:db8:0:aa${n.toString(16).padStart(2, '0')}::${n + 1}`]);
      expectProblem(await attempt('ada', '2001:db8:0:aaff:1:2:3:4', 'right'), 429, 'too_many_attempts');
      expect((await attempt('ada', '2001:db8:0:ab00::1', 'right')).status).toBe(200);
    });

    test('from an IPv4 address and from its IPv6 form count as from one address', async () => {
      await fail(30, (n) => [`user${n}`, n % 2 ? '192.0.2.9' : '::ffff:192.0.2.9']);
      expectProblem(await attempt('ada', '192.0.2.9', 'right'), 429, 'too_many_attempts');
    });
  });

  describe('many sign-ins at once', () => {
    const atOnce = (count: number, of: (n: number) => [account: string, from: string, password?: string]) =>
      Promise.all(Array.from({ length: count }, (_, n) => attempt(...of(n))));

    test('with the right password all succeed, for one account and from one address', async () => {
      const answers = await atOnce(60, (n) => [n % 2 ? 'ada' : `user${n}`, '192.0.2.1', 'right']);
      expect(answers.map(({ status }) => status)).toEqual(Array(60).fill(200));
    });

    test('with wrong passwords for one account: 10 are checked, and the others are refused', async () => {
      const answers = await atOnce(60, (n) => ['ada', `192.0.2.${n}`]);
      expect(checked).toHaveLength(10);
      expect(answers.filter(({ status }) => status === 401)).toHaveLength(10);
      for (const answer of answers.filter(({ status }) => status !== 401)) {
        expectProblem(answer, 429, 'too_many_attempts');
        const seconds = Number(answer.headers['retry-after']);
        expect(seconds).toBeGreaterThan(WINDOW_MS / 1000 - 60);
        expect(seconds).toBeLessThanOrEqual(WINDOW_MS / 1000);
      }
    });

    test('with wrong passwords from one address: no more are checked than may fail', async () => {
      const answers = await atOnce(60, (n) => [`user${n}`, '192.0.2.1']);
      expect(checked).toHaveLength(30);
      expect(answers.filter(({ status }) => status === 429)).toHaveLength(30);
    });

    test('with the right password, after 9 failures: all succeed, and the failures still count', async () => {
      await fail(9, () => ['ada', '192.0.2.1']);
      const answers = await atOnce(20, () => ['ada', '192.0.2.1', 'right']);
      expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
      await fail(1, () => ['ada', '192.0.2.1']);
      expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
    });
  });

  describe('a sign-in for which another one has the last place waits for it', () => {
    const both = async (right: boolean) => {
      await fail(9, (n) => ['ada', `192.0.2.${n}`]);
      const first = attempt('ada', '192.0.2.20', 'slow');
      await until(() => slow.length === 1);
      const second = attempt('ada', '192.0.2.21', 'right');
      await until(() => arrived === 11);
      expect((await attempt('bob', '192.0.2.22', 'right')).status).toBe(200);
      // That of bob too, but not the second one.
      expect(checked).toHaveLength(11);
      slow[0]?.(right);
      return [(await first).status, (await second).status];
    };

    test('and is checked if the other succeeds', async () => {
      expect(await both(true)).toEqual([200, 200]);
    });

    test('and is refused if the other fails', async () => {
      expect(await both(false)).toEqual([401, 429]);
      expect(checked).toHaveLength(11);
    });

    test('and blocks nobody if its client leaves meanwhile', async () => {
      await fail(9, (n) => ['ada', `192.0.2.${n}`]);
      const first = attempt('ada', '192.0.2.20', 'slow');
      await until(() => slow.length === 1);
      const leaving = request({ port: stage.port, method: 'POST', headers: { 'X-Account': 'ada' } });
      leaving.on('error', () => {}).end();
      await until(() => arrived === 11);
      leaving.destroy();
      await oneRoundTrip();
      slow[0]?.(true);
      expect((await first).status).toBe(200);
      expect((await attempt('ada', '192.0.2.21', 'right')).status).toBe(200);
      expect(checked).toHaveLength(11);
    });
  });

  describe('attempts that do not count as failed:', () => {
    test('those that ended with an internal failure', async () => {
      for (let n = 0; n < 12; n += 1) {
        expect((await attempt('ada', '192.0.2.1', 'unavailable')).status).toBe(503);
      }
      expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    });

    test('those whose client left before the password was checked', async () => {
      const busy = [1, 2].map((n) => attempt('bob', `192.0.2.${n}`, 'slow'));
      await until(() => slow.length === 2);
      for (let n = 0; n < 12; n += 1) {
        const leaving = rawClient(stage.port, rawMessage({ path: '/', headers: ['X-Account: ada'] }));
        await until(() => arrived === n + 3);
        leaving.socket.destroy();
      }
      await oneRoundTrip();
      for (const end of slow) end(true);
      await Promise.all(busy);
      expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
      expect(checked).toEqual(['slow', 'slow', 'right']);
    });
  });

  test('a wrong password counts even if its client has left before the answer', async () => {
    for (let n = 0; n < 10; n += 1) {
      const leaving = rawClient(
        stage.port,
        rawMessage({ path: '/', headers: ['X-Account: ada', 'X-Password: slow'] }),
      );
      await until(() => slow.length === n + 1);
      leaving.socket.destroy();
      await leaving.closed;
      await oneRoundTrip();
      slow[n]?.(false);
    }
    expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
  });

  describe('sign-ins that succeed', () => {
    test('are not counted', async () => {
      for (let n = 0; n < 25; n += 1) expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    });

    test('do not reset the failures before them', async () => {
      await fail(9, () => ['ada', '192.0.2.1']);
      expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
      await fail(1, () => ['ada', '192.0.2.1']);
      expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
    });
  });
}

describe('sign-in attempts counted in memory:', () => {
  beforeEach(() => start({ counts: memoryAttempts }));
  contract();

  test('failures are forgotten exactly after Retry-After', async () => {
    await fail(1, () => ['ada', '192.0.2.1']);
    clock += 60_000;
    await fail(9, () => ['ada', '192.0.2.1']);
    const { headers } = await attempt('ada', '192.0.2.1', 'right');
    expect(headers['retry-after']).toBe(String((WINDOW_MS - 60_000) / 1000));
    clock += 500;
    // Rounded up, so that a client that waits this long is not too early.
    expect((await attempt('ada', '192.0.2.1', 'right')).headers['retry-after']).toBe(headers['retry-after']);
    clock += Number(headers['retry-after']) * 1000 - 501;
    const early = await attempt('ada', '192.0.2.1', 'right');
    expect([early.status, early.headers['retry-after']]).toEqual([429, '1']);
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

  test('failures at one instance count at the others', async () => {
    await fail(5, () => ['ada', '192.0.2.1']);
    await stage.close();
    await start({ counts: redisAttempts(redis) });
    await fail(5, () => ['ada', '192.0.2.2']);
    expectProblem(await attempt('ada', '198.51.100.1', 'right'), 429, 'too_many_attempts');
  });

  test('failures are forgotten after Retry-After', async () => {
    now.mockRestore();
    await stage.close();
    await start({ counts: redisAttempts(redis), windowMs: 2000 });
    let refused = await attempt('ada', '192.0.2.1');
    await until(async () => {
      const answers = await Promise.all(Array.from({ length: 10 }, () => attempt('ada', '192.0.2.1')));
      refused = answers.find(({ status }) => status === 429) ?? refused;
      return refused.status === 429;
    });
    await sleep(Number(refused.headers['retry-after']) * 1000);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
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

  test('of wrong passwords that arrive at two instances at once, 10 are checked', async () => {
    const another = await connected(server.url);
    const there = await open({ counts: redisAttempts(another) });
    const answers = await Promise.all(
      Array.from({ length: 80 }, (_, n) => attempt('ada', `192.0.2.${n}`, 'wrong', n % 2 ? there : stage)),
    );
    await there.close();
    another.close();
    expect(checked).toHaveLength(10);
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([...Array(10).fill(401), ...Array(70).fill(429)]);
  });

  test('right passwords that arrive at two instances at once all succeed', async () => {
    const another = await connected(server.url);
    const there = await open({ counts: redisAttempts(another) });
    const answers = await Promise.all(
      Array.from({ length: 80 }, (_, n) => attempt('ada', '192.0.2.1', 'right', n % 2 ? there : stage)),
    );
    await there.close();
    another.close();
    expect(answers.map(({ status }) => status)).toEqual(Array(80).fill(200));
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

  describe('while Redis is away', () => {
    let wire: FaultProxy;
    let lost: Redis;
    beforeEach(async () => {
      await stage.close();
      wire = await faultProxy(server.url);
      lost = await connected(wire.url);
      await start({ counts: redisAttempts(lost) });
    });
    afterEach(() => {
      lost.close();
      wire.close();
    });

    test('a wrong password is answered with 503, since it cannot be counted', async () => {
      const wrong = attempt('ada', '192.0.2.1', 'slow');
      await until(() => slow.length === 1);
      wire.cut();
      slow[0]?.(false);
      expectProblem(await wrong, 503, 'session_store_unavailable');
    });

    test('no password is checked: the answer is 503 until it is back', async () => {
      wire.cut();
      for (const answer of await Promise.all([
        attempt('ada', '192.0.2.1'),
        attempt('ada', '192.0.2.1', 'right'),
      ]))
        expectProblem(answer, 503, 'session_store_unavailable');
      expect(checked).toEqual([]);
      wire.mend();
      await until(async () => (await attempt('ada', '192.0.2.1', 'right')).status === 200);
    });
  });
});

describe('the queue of sign-ins', () => {
  test('has a limit: a sign-in beyond it gets Retry-After, and succeeds when there is room', async () => {
    await start({ counts: memoryAttempts });
    const all = Array.from({ length: 100 }, (_, n) => attempt(`user${n}`, `192.0.${n}.1`, 'slow'));
    await until(() => slow.length === 2);
    await until(() => arrived === 100);
    const refused = await attempt('ada', '192.0.2.1', 'right');
    expectProblem(refused, 503, 'busy');
    expect(refused.headers['retry-after']).toBe('10');
    for (let done = 0; done < 100; done += 1) {
      await until(() => slow.length > done);
      slow[done]?.(true);
    }
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual(Array(100).fill(200));
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });

  test('is not filled by one address, so that others find a place', async () => {
    await start({ counts: memoryAttempts });
    const all = Array.from({ length: 120 }, (_, n) => attempt(`user${n}`, '192.0.2.1', 'slow'));
    await until(() => slow.length === 2);
    await until(() => arrived === 75);
    expectProblem(await attempt('bob', '192.0.2.1', 'right'), 503, 'busy');
    const other = attempt('ada', '198.51.100.1', 'right');
    for (let done = 0; done < 75; done += 1) {
      await until(() => slow.length > done);
      slow[done]?.(true);
    }
    expect((await other).status).toBe(200);
    const statuses = (await Promise.all(all)).map(({ status }) => status).sort();
    expect(statuses).toEqual([...Array(75).fill(200), ...Array(45).fill(503)]);
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
    expect((await Promise.all([...first, last])).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(checked).toEqual(['slow', 'slow', 'right']);
  });

  test.each([
    ['for running checks', 'bob'],
    ['for sign-ins of the same account', 'ada'],
  ])('ends after some time for a sign-in that waits %s', async (_why, account) => {
    await start({ counts: memoryAttempts, maxWaitMs: 300 });
    const count = account === 'ada' ? 10 : 2;
    const first = Array.from({ length: count }, (_, n) => attempt(account, `192.0.2.${n}`, 'slow'));
    await until(() => slow.length === 2);
    expectProblem(await attempt('ada', '198.51.100.1', 'right'), 503, 'busy');
    for (const end of slow) end(true);
    const statuses = (await Promise.all(first)).map(({ status }) => status);
    expect(statuses.slice().sort()).toEqual([...Array(2).fill(200), ...Array(count - 2).fill(503)]);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });
});

describe('the login of a whole relay', () => {
  let relay: TestRelay;
  beforeAll(async () => {
    relay = await startRelay('http://127.0.0.1:9', { LOGIN_MAX_FAILURES_PER_ADDRESS: '5' });
  });
  afterAll(() => relay.close());

  test('counts by the address of the connection if no proxy is trusted, and ignores X-Forwarded-For', async () => {
    const login = (n: number) =>
      call(relay.port, '/auth/login', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': `192.0.2.${n}` },
        body: JSON.stringify({ username: `user${n}`, password: 'wrong' }),
      });
    for (let n = 0; n < 5; n += 1) expectProblem(await login(n), 401, 'invalid_credentials');
    const refused = await login(5);
    expectProblem(refused, 429, 'too_many_attempts');
    // A client must not learn how many attempts are left.
    expect(Object.keys(refused.headers).filter((name) => name.includes('ratelimit'))).toEqual([]);
  });
});
