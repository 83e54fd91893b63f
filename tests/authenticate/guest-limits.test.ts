import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import { type Answer, call, expectProblem } from '../harness/clients/call.ts';
import { eventually } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestLimits, type TestRelay } from '../harness/relay/relay.ts';
import { idOf } from '../harness/relay/sessions.ts';

const relays: TestRelay[] = [];
afterEach(async () => {
  for (const relay of relays.splice(0)) await relay.close();
});
afterAll(() => stopRedis());

async function start(environment: Record<string, string>, limits?: TestLimits): Promise<TestRelay> {
  const relay = await startRelay('http://127.0.0.1:9', { AUTH_MODE: 'guest', ...environment }, limits);
  relays.push(relay);
  return relay;
}

const post = ({ port }: TestRelay, path: string, headers = {}) =>
  call(port, path, { method: 'POST', headers });
const becomeGuest = (relay: TestRelay, from?: string, headers = {}) =>
  post(relay, '/auth/guest', { ...(from !== undefined && { 'X-Forwarded-For': from }), ...headers });
async function becomeGuestNow(relay: TestRelay, headers = {}): Promise<Answer> {
  const answer = await becomeGuest(relay, undefined, headers);
  expect(answer.status).toBe(200);
  return answer;
}
const cookieIn = ({ headers }: Answer) => (headers['set-cookie']?.[0] ?? '').split(';', 1)[0] as string;
const userIn = ({ body }: Answer) => (JSON.parse(body) as { user: { id: string } }).user.id;

function expectRefused(answer: Answer, windowMs: number) {
  expectProblem(answer, 429, 'too_many_attempts');
  const seconds = Number(answer.headers['retry-after']);
  expect(seconds).toBeGreaterThanOrEqual(1);
  expect(seconds).toBeLessThanOrEqual(windowMs / 1000);
  for (const name of ['set-cookie', 'ratelimit', 'ratelimit-policy']) {
    expect(answer.headers).not.toHaveProperty(name);
  }
}

/** The tests for both kinds of counts; `shared` returns the variables that choose one. */
function contract(shared: () => Promise<Record<string, string>>): void {
  const limited = async (more: Record<string, string>) => start({ ...(await shared()), ...more });

  test('allows GUESTS_PER_ADDRESS new guests from one address; guests who have a session go on', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '3' });
    const guests = [await becomeGuest(relay), await becomeGuest(relay), await becomeGuest(relay)];
    expect(guests.map(({ status }) => status)).toEqual([200, 200, 200]);
    expectRefused(await becomeGuest(relay), 600_000);
    const headers = { Cookie: cookieIn(guests[0] as Answer) };
    expect((await call(relay.port, '/auth/session', { headers })).status).toBe(200);
    expect((await post(relay, '/auth/guest', headers)).status).toBe(200);
  });

  test('counts a guest who signs out and comes back as a new one', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '2' });
    for (let n = 0; n < 2; n += 1) {
      const guest = await becomeGuest(relay);
      expect(guest.status).toBe(200);
      expect((await post(relay, '/auth/logout', { Cookie: cookieIn(guest) })).status).toBe(204);
    }
    expectRefused(await becomeGuest(relay), 600_000);
  });

  test('does not count requests that are refused before, or do not ask for a session', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '1' });
    for (let n = 0; n < 3; n += 1) {
      expect((await becomeGuest(relay, undefined, { 'Sec-Fetch-Site': 'cross-site' })).status).toBe(403);
      expect((await call(relay.port, '/auth/guest')).status).toBe(405);
    }
    expect((await becomeGuest(relay)).status).toBe(200);
  });

  test('does not count repeated requests of one guest, which the limit by session counts', async () => {
    const relay = await limited({ CLIENT_LIMIT_PER_SESSION: '2' });
    const headers = { Cookie: cookieIn(await becomeGuest(relay)) };
    const answers = [
      await becomeGuest(relay, undefined, headers),
      await becomeGuest(relay, undefined, headers),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expectRefused(await becomeGuest(relay, undefined, headers), 60_000);
    expect((await becomeGuest(relay)).status).toBe(200);
  });

  test('holds for many requests at the same time', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '5' });
    const answers = await Promise.all(Array.from({ length: 20 }, () => becomeGuest(relay)));
    expect(answers.map(({ status }) => status).sort()).toEqual([
      ...Array(5).fill(200),
      ...Array(15).fill(429),
    ]);
    const guests = answers.filter(({ status }) => status === 200).map(userIn);
    expect(new Set(guests).size).toBe(5);
  });

  test('ignores X-Forwarded-For without a trusted proxy', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '2' });
    for (const n of [1, 2]) expect((await becomeGuest(relay, `192.0.2.${n}`)).status).toBe(200);
    expectRefused(await becomeGuest(relay, '192.0.2.3', { Forwarded: 'for=192.0.2.9' }), 600_000);
  });

  test('counts by address behind a trusted proxy, where an IPv6 /56 is one address', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '2', TRUST_PROXY: '1' });
    for (const n of [1, 2]) {
      // The addresses that the client itself has sent do not count.
      expect((await becomeGuest(relay, `192.0.2.${n}, 2001:db8:0:aa0${n}::${n}`)).status).toBe(200);
    }
    expectRefused(await becomeGuest(relay, '192.0.2.3, 2001:db8:0:aaff:1:2:3:4'), 600_000);
    expect((await becomeGuest(relay, '2001:db8:0:ab00::1')).status).toBe(200);
    expect((await becomeGuest(relay, '198.51.100.1')).status).toBe(200);
    expect((await becomeGuest(relay, '::ffff:198.51.100.1')).status).toBe(200);
    expectRefused(await becomeGuest(relay, '198.51.100.1'), 600_000);
  });

  test('is off with 0', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '0' });
    for (let n = 0; n < 120; n += 1) expect((await becomeGuest(relay)).status).toBe(200);
  });
}

describe('the limit on guests, counted in memory', () => {
  contract(async () => ({}));
});

describeWithRedis('the limit on guests, counted in Redis', () => {
  let redis: RedisServer;
  const onRedis = async (more: Record<string, string> = {}) => {
    redis = await startRedis();
    return { REDIS_URL: redis.url, ...more };
  };
  contract(onRedis);

  test('is shared by all instances, as the guests are', async () => {
    const environment = await onRedis({ GUESTS_PER_ADDRESS: '3' });
    const [one, two] = [await start(environment), await start(environment)];
    const guest = await becomeGuest(one);
    const headers = { Cookie: cookieIn(guest) };
    const seen = await call(two.port, '/auth/session', { headers });
    expect([seen.status, userIn(seen)]).toEqual([200, userIn(guest)]);
    expect(userIn(await post(two, '/auth/guest', headers))).toBe(userIn(guest));
    expect((await becomeGuest(two)).status).toBe(200);
    expect((await becomeGuest(one)).status).toBe(200);
    expectRefused(await becomeGuest(one), 600_000);
    expectRefused(await becomeGuest(two), 600_000);
    expect((await post(two, '/auth/logout', headers)).status).toBe(204);
    expect((await call(one.port, '/auth/session', { headers })).status).toBe(401);
  });

  test('stores no address in clear text, and every count expires', async () => {
    await becomeGuest(await start(await onRedis()));
    const keys = (await redis.command('KEYS', 'bot-relay:limit:guests:*')) as string[];
    expect(keys).toEqual([expect.stringMatching(/^bot-relay:limit:guests:[\w-]{43}$/)]);
    expect(await redis.command('PTTL', keys[0] as string)).toBeGreaterThan(0);
  });

  test('answers 503 while Redis is out of reach, and works when it is back', async () => {
    const relay = await start(await onRedis(), { commandTimeoutMs: 200 });
    const guest = await eventually(() => becomeGuestNow(relay));
    const headers = { Cookie: cookieIn(guest) };
    redis.pause();
    const answers = await Promise.all([becomeGuest(relay), post(relay, '/auth/guest', headers)]);
    for (const answer of answers) {
      expectProblem(answer, 503, 'session_store_unavailable');
      expect(answer.headers['retry-after']).toBe('1');
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    redis.resume();
    await eventually(() => becomeGuestNow(relay));
    await eventually(() => becomeGuestNow(relay, headers));
  });

  test('ignores sessions of another AUTH_MODE, where guests are not signed in either', async () => {
    const environment = await onRedis();
    const guests = await start(environment);
    const users = await start({ ...environment, AUTH_MODE: 'password' });
    const [ada, guest] = [await users.signIn(), await becomeGuest(guests)];
    const session = ({ port }: TestRelay, cookie: string) =>
      call(port, '/auth/session', { headers: { Cookie: cookie } });
    const ask = ({ port }: TestRelay, cookie: string) =>
      call(port, BOT_PATH, {
        method: 'POST',
        headers: { Cookie: cookie, 'Content-Type': 'application/json' },
        body: MESSAGE,
      });
    for (const [relay, cookie] of [
      [guests, ada],
      [users, cookieIn(guest)],
    ] as const) {
      expectProblem(await session(relay, cookie), 401, 'unauthenticated');
      expectProblem(await ask(relay, cookie), 401, 'unauthenticated');
      expectProblem(await post(relay, '/auth/logout', { Cookie: cookie }), 401, 'unauthenticated');
    }
    const other = await post(guests, '/auth/guest', { Cookie: ada });
    expect(userIn(other)).toMatch(/^guest:/);
    expect(idOf(cookieIn(other))).not.toBe(idOf(ada));
    // Each session is valid in the mode where it began.
    expect(userIn(await session(users, ada))).toBe('ada');
    expect(userIn(await session(guests, cookieIn(guest)))).toBe(userIn(guest));
  });
});
