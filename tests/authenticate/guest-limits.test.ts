import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { eventually } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

const start = (environment: Record<string, string>, limits = {}) =>
  startRelay('http://127.0.0.1:9', { AUTH_MODE: 'guest', ...environment }, limits);
const post = ({ port }: TestRelay, path: string, headers = {}) =>
  call(port, path, { method: 'POST', headers });
const cookieIn = ({ headers }: Answer) => (headers['set-cookie']?.[0] ?? '').split(';', 1)[0] as string;
const userIn = ({ body }: Answer) => (JSON.parse(body) as { user: { id: string } }).user.id;

function expectRefused(answer: Answer, windowMs = 600_000) {
  expectProblem(answer, 429, 'too_many_attempts');
  const seconds = Number(answer.headers['retry-after']);
  expect([seconds >= 1, seconds <= windowMs / 1000]).toEqual([true, true]);
  for (const name of ['set-cookie', 'ratelimit', 'ratelimit-policy'])
    expect(answer.headers).not.toHaveProperty(name);
}

/** The tests for both kinds of counts: `open` starts the instances, of which each request goes to the next one. */
function contract(open: (environment: Record<string, string>) => Promise<TestRelay[]>): void {
  let relays: TestRelay[];
  beforeAll(async () => {
    relays = await open({ GUESTS_PER_ADDRESS: '3', TRUST_PROXY: '1' });
  });
  afterAll(() => Promise.all(relays.map((relay) => relay.close())));
  let [turns, addresses] = [0, 0];
  const next = () => relays[++turns % relays.length] as TestRelay;
  const newAddress = () => `192.0.2.${++addresses}`;
  const arrive = (from: string, headers = {}) =>
    post(next(), '/auth/guest', { 'X-Forwarded-For': from, ...headers });

  test('allows so many new guests from one address; guests who have a session go on at each instance', async () => {
    const from = newAddress();
    const guests = [await arrive(from), await arrive(from), await arrive(from)];
    expect(guests.map(({ status }) => status)).toEqual([200, 200, 200]);
    for (const _relay of relays) expectRefused(await arrive(from));
    const headers = { Cookie: cookieIn(guests[0] as Answer) };
    for (const { port } of relays) {
      expect(isSignedIn(await call(port, '/auth/session', { headers }))).toBe(true);
      expect(userIn(await arrive(from, headers))).toBe(userIn(guests[0] as Answer));
    }
    expect((await post(next(), '/auth/logout', headers)).status).toBe(204);
    for (const { port } of relays) expectNobody(await call(port, '/auth/session', { headers }));
    // Who signs out and comes back is a new guest.
    expectRefused(await arrive(from, headers));
  });

  test('does not count requests that are refused before, or do not ask for a session', async () => {
    const from = newAddress();
    for (let n = 0; n < 4; n += 1) {
      expect((await arrive(from, { 'Sec-Fetch-Site': 'cross-site' })).status).toBe(403);
      const headers = { 'X-Forwarded-For': from };
      expect((await call(next().port, '/auth/guest', { headers })).status).toBe(405);
    }
    expect((await arrive(from)).status).toBe(200);
  });

  test('holds for many requests at the same time', async () => {
    const from = newAddress();
    const answers = await Promise.all(Array.from({ length: 20 }, () => arrive(from)));
    const guests = answers.filter(({ status }) => status === 200).map(userIn);
    expect([guests.length, new Set(guests).size]).toEqual([3, 3]);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(17);
  });

  test('counts by address behind a trusted proxy, where an IPv6 /56 is one address', async () => {
    // The addresses that the client itself has sent do not count.
    for (const n of [1, 2, 3])
      expect((await arrive(`${newAddress()}, 2001:db8:0:aa0${n}::${n}`)).status).toBe(200);
    expectRefused(await arrive(`${newAddress()}, 2001:db8:0:aaff:1:2:3:4`));
    expect((await arrive('2001:db8:0:ab00::1')).status).toBe(200);
    for (const from of ['198.51.100.1', '::ffff:198.51.100.1', '198.51.100.1'])
      expect((await arrive(from)).status).toBe(200);
    expectRefused(await arrive('198.51.100.1'));
  });
}

describe('the limit on guests, counted in memory', () => {
  contract(async (environment) => [await start(environment)]);

  test('is that of the connection without a trusted proxy', async () => {
    const relay = await start({ GUESTS_PER_ADDRESS: '1' });
    expect((await post(relay, '/auth/guest', { 'X-Forwarded-For': '192.0.2.1' })).status).toBe(200);
    const headers = { 'X-Forwarded-For': '192.0.2.2', Forwarded: 'for=192.0.2.9' };
    expectRefused(await post(relay, '/auth/guest', headers));
    await relay.close();
  });

  test('leaves repeated requests of one guest to the limit by session, and is off with 0', async () => {
    const relay = await start({ GUESTS_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '2' });
    const Cookie = cookieIn(await post(relay, '/auth/guest'));
    for (let n = 0; n < 2; n += 1) expect((await post(relay, '/auth/guest', { Cookie })).status).toBe(200);
    expectRefused(await post(relay, '/auth/guest', { Cookie }), 60_000);
    for (let n = 0; n < 120; n += 1) expect((await post(relay, '/auth/guest')).status).toBe(200);
    await relay.close();
  });
});

describeWithRedis('the limit on guests, counted in Redis', () => {
  let redis: RedisServer;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => stopRedis());
  contract(async (environment) => {
    const shared = { ...environment, REDIS_URL: redis.url };
    return [await start(shared), await start(shared)];
  });

  test('stores no address in clear text, and every count expires', async () => {
    const keys = (await redis.command('KEYS', 'bot-relay:limit:guests:*')) as string[];
    expect(keys.length).toBeGreaterThan(0);
    for (const key of keys) {
      expect(key).toMatch(/^bot-relay:limit:guests:[\w-]{43}$/);
      expect(await redis.command('PTTL', key)).toBeGreaterThan(0);
    }
  });

  test('answers 503 while Redis is out of reach, and works when it is back', async () => {
    const relay = await start({ REDIS_URL: redis.url }, { commandTimeoutMs: 200 });
    const succeed = (headers = {}) =>
      eventually(async () => {
        const answer = await post(relay, '/auth/guest', headers);
        expect(answer.status).toBe(200);
        return answer;
      });
    const headers = { Cookie: cookieIn(await succeed()) };
    redis.pause();
    for (const asked of [post(relay, '/auth/guest'), post(relay, '/auth/guest', headers)]) {
      const answer = await asked;
      expectProblem(answer, 503, 'session_store_unavailable');
      expect(answer.headers['retry-after']).toBe('1');
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    redis.resume();
    await succeed();
    await succeed(headers);
    await relay.close();
  });
});
