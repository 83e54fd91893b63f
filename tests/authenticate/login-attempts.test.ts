import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Request } from 'express';
import { loginAttempts } from '../../src/authenticate/login-attempts.ts';
import { Problem } from '../../src/errors.ts';
import { clientAddress } from '../../src/guard/client-address.ts';
import { redisCounts } from '../../src/guard/redis-counts.ts';
import { type Counts, memoryCounts, requestLimits } from '../../src/guard/request-limits.ts';
import { createLogger } from '../../src/logger.ts';
import type { Redis } from '../../src/redis.ts';
import { call, expectProblem } from '../support/call.ts';
import { connected, describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';
import { startStage, type TestStage } from '../support/stage.ts';

const WINDOW_MS = 10 * 60_000;

let stage: TestStage;
let clock: number;
/** Lets the request with the password `slow` go on. */
let finish: () => void;
let now: jest.SpiedFunction<typeof Date.now>;
/** Starts a login whose outcome is what the request's `X-Password` says. */
async function start(counts: Counts, windowMs = WINDOW_MS) {
  const limit = requestLimits(counts, createLogger('silent'));
  const accountOf = (req: Request) => String(req.headers['x-account']);
  const options = { maxFailures: 10, windowMs, addressOf: clientAddress, accountOf };
  stage = await startStage((app) => {
    app.set('trust proxy', true);
    app.post('/', ...loginAttempts(limit, options), (req, res) => {
      const password = req.headers['x-password'];
      if (password === 'wrong') throw new Problem('invalid_credentials', 'Wrong.');
      if (password === 'unavailable') throw new Problem('session_store_unavailable', 'Away.');
      if (password === 'left') res.destroy();
      else if (password === 'slow') finish = () => void res.end();
      else res.end();
    });
  });
}
beforeEach(() => {
  clock = Date.now();
  now = jest.spyOn(Date, 'now').mockImplementation(() => clock);
});
afterEach(async () => {
  now.mockRestore();
  await stage.close();
});

const attempt = (account: string, from: string, password = 'wrong') =>
  call(stage.port, '/', {
    method: 'POST',
    headers: { 'X-Account': account, 'X-Forwarded-For': from, 'X-Password': password },
  });

async function fail(times: number, each: (n: number) => [account: string, from: string]): Promise<void> {
  for (let n = 0; n < times; n += 1) expect((await attempt(...each(n))).status).toBe(401);
}

/** What holds wherever the failures are counted. */
function contract(): void {
  describe('10 failed sign-ins', () => {
    test('of one account, from wherever they came, are enough, even for the right password (G14)', async () => {
      await fail(10, (n) => ['ada', `192.0.2.${n}`]);
      expectProblem(await attempt('ada', '198.51.100.1', 'right'), 429, 'too_many_attempts');
      expect((await attempt('bob', '198.51.100.1', 'right')).status).toBe(200);
    });

    test('from one address, for whatever accounts, are enough (G14)', async () => {
      await fail(10, (n) => [`user${n}`, '192.0.2.1']);
      expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
      expect((await attempt('ada', '192.0.2.2', 'right')).status).toBe(200);
    });

    test('from inside one IPv6 /56 count as from one address (G14, G16)', async () => {
      await fail(10, (n) => [`user${n}`, `2001:db8:0:aa0${n.toString(16)}::${n + 1}`]);
      expectProblem(await attempt('ada', '2001:db8:0:aaff:1:2:3:4', 'right'), 429, 'too_many_attempts');
      expect((await attempt('ada', '2001:db8:0:ab00::1', 'right')).status).toBe(200);
    });

    test('from an IPv4 address and from its IPv6 form count as from one address (G16)', async () => {
      await fail(10, (n) => [`user${n}`, n % 2 ? '192.0.2.9' : '::ffff:192.0.2.9']);
      expectProblem(await attempt('ada', '192.0.2.9', 'right'), 429, 'too_many_attempts');
    });
  });

  describe('attempts that are no failed sign-ins do not count:', () => {
    test('those that met a fault', async () => {
      for (let n = 0; n < 12; n += 1) {
        expect((await attempt('ada', '192.0.2.1', 'unavailable')).status).toBe(503);
      }
      expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    });

    test('those whose client left before the answer', async () => {
      for (let n = 0; n < 12; n += 1) {
        await expect(attempt('ada', '192.0.2.1', 'left')).rejects.toMatchObject({ code: 'ECONNRESET' });
      }
      expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    });
  });

  describe('sign-ins that go well', () => {
    test('are not counted', async () => {
      for (let n = 0; n < 25; n += 1) expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    });

    test('do not wipe out the failures before them', async () => {
      await fail(9, () => ['ada', '192.0.2.1']);
      expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
      await fail(1, () => ['ada', '192.0.2.1']);
      expectProblem(await attempt('ada', '192.0.2.1', 'right'), 429, 'too_many_attempts');
    });
  });
}

describe('counted in memory', () => {
  beforeEach(() => start(memoryCounts));
  contract();

  test('failures are forgotten exactly when Retry-After says (G14)', async () => {
    await fail(1, () => ['ada', '192.0.2.1']);
    clock += 60_000;
    await fail(9, () => ['ada', '192.0.2.1']);
    const { headers } = await attempt('ada', '192.0.2.1', 'right');
    expect(headers['retry-after']).toBe(String((WINDOW_MS - 60_000) / 1000));
    clock += 500;
    // Rounded up: who waits for so long does not come too early.
    expect((await attempt('ada', '192.0.2.1', 'right')).headers['retry-after']).toBe(headers['retry-after']);
    clock += Number(headers['retry-after']) * 1000 - 501;
    const early = await attempt('ada', '192.0.2.1', 'right');
    expect([early.status, early.headers['retry-after']]).toEqual([429, '1']);
    clock += 1;
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });
});

describeWithRedis('counted in Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  beforeAll(async () => {
    server = await startRedis();
    redis = await connected(server.url);
  });
  beforeEach(() => start(redisCounts(redis)));
  afterEach(() => server.command('FLUSHALL'));
  afterAll(() => {
    redis.close();
    stopRedis();
  });
  contract();

  test('failures at one instance count at the others (G14)', async () => {
    await fail(5, () => ['ada', '192.0.2.1']);
    await stage.close();
    await start(redisCounts(redis));
    await fail(5, () => ['ada', '192.0.2.2']);
    expectProblem(await attempt('ada', '198.51.100.1', 'right'), 429, 'too_many_attempts');
  });

  test('failures are forgotten when Retry-After says (G14)', async () => {
    now.mockRestore();
    await stage.close();
    await start(redisCounts(redis), 3000);
    await fail(10, () => ['ada', '192.0.2.1']);
    const { status, headers } = await attempt('ada', '192.0.2.1', 'right');
    expect(status).toBe(429);
    const seconds = Number(headers['retry-after']);
    expect(seconds).toBeGreaterThanOrEqual(1);
    expect(seconds).toBeLessThanOrEqual(3);
    await sleep(seconds * 1000);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
  });

  test('no account can be taken for an address, nor fill Redis with its name', async () => {
    await fail(10, (n) => ['192.0.2.1', `198.51.100.${n}`]);
    expect((await attempt('ada', '192.0.2.1', 'right')).status).toBe(200);
    await attempt(`login-address:${'x'.repeat(5000)}`, '192.0.2.1');
    const keys = (await server.command('KEYS', '*')) as string[];
    expect(keys.length).toBeGreaterThan(10);
    for (const key of keys) {
      expect(key).toMatch(/^bot-relay:limit:login-(address|account):[\w-]{43}$/);
      expect(await server.command('PTTL', key)).toBeGreaterThan(0);
    }
  });

  test('a failure that Redis has forgotten is not taken back: no count is left that never ends', async () => {
    const leaving = attempt('ada', '192.0.2.1', 'slow').catch(() => 'left');
    while ((await server.command('DBSIZE')) !== 2) await sleep(5);
    await server.command('FLUSHALL');
    finish();
    await leaving;
    await sleep(50);
    expect(await server.command('DBSIZE')).toBe(0);
  });

  test('nobody tries a password while Redis is away: 503, and again when it is back (G12)', async () => {
    server.pause();
    const from = performance.now();
    const answers = await Promise.all([attempt('ada', '192.0.2.1'), attempt('ada', '192.0.2.1', 'right')]);
    expect(performance.now() - from).toBeLessThan(1000);
    for (const answer of answers) expectProblem(answer, 503, 'session_store_unavailable');
    server.resume();
    while ((await attempt('ada', '192.0.2.1', 'right')).status !== 200) await sleep(50);
  });
});

describe('the login of a whole relay', () => {
  let relay: TestRelay;
  beforeAll(async () => {
    relay = await startRelay('http://127.0.0.1:9');
  });
  afterAll(() => relay.close());

  test('counts by the connection’s address where no proxy is trusted, whatever X-Forwarded-For says (G16)', async () => {
    const login = (n: number) =>
      call(relay.port, '/auth/login', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': `192.0.2.${n}` },
        body: JSON.stringify({ username: `user${n}`, password: 'wrong' }),
      });
    for (let n = 0; n < 10; n += 1) expectProblem(await login(n), 401, 'invalid_credentials');
    const refused = await login(10);
    expectProblem(refused, 429, 'too_many_attempts');
    // How many attempts are left is nobody's business.
    expect(Object.keys(refused.headers).filter((name) => name.includes('ratelimit'))).toEqual([]);
  });
});
