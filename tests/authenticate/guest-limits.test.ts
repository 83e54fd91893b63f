import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type Answer, call, expectProblem } from '../support/call.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../support/relay.ts';
import { idOf } from '../support/sessions.ts';

const relays: TestRelay[] = [];
afterEach(async () => {
  for (const relay of relays.splice(0)) await relay.close();
  stopRedis();
});

async function start(environment: Record<string, string>): Promise<TestRelay> {
  const relay = await startRelay('http://127.0.0.1:9', { AUTH_MODE: 'guest', ...environment });
  relays.push(relay);
  return relay;
}

const post = ({ port }: TestRelay, path: string, headers = {}) =>
  call(port, path, { method: 'POST', headers });
const arrive = (relay: TestRelay, from?: string, headers = {}) =>
  post(relay, '/auth/guest', { ...(from !== undefined && { 'X-Forwarded-For': from }), ...headers });
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
  return seconds;
}

/** What holds wherever guests are counted; `shared` says where. */
function contract(shared: () => Promise<Record<string, string>>): void {
  const limited = async (more: Record<string, string>) => start({ ...(await shared()), ...more });

  test('GUESTS_PER_ADDRESS new guests come from one address in LOGIN_WINDOW_MS, until Retry-After', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '3', LOGIN_WINDOW_MS: '4000' });
    const guests = [await arrive(relay), await arrive(relay), await arrive(relay)];
    expect(guests.map(({ status }) => status)).toEqual([200, 200, 200]);
    const seconds = expectRefused(await arrive(relay), 4000);
    // Those who are there go on.
    const headers = { Cookie: cookieIn(guests[0] as Answer) };
    expect((await call(relay.port, '/auth/session', { headers })).status).toBe(200);
    expect((await post(relay, '/auth/guest', headers)).status).toBe(200);
    await sleep(seconds * 1000);
    expect((await arrive(relay)).status).toBe(200);
  });

  test('who signs out and comes again is a new guest, and counts as one', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '2' });
    for (let n = 0; n < 2; n += 1) {
      const guest = await arrive(relay);
      expect(guest.status).toBe(200);
      expect((await post(relay, '/auth/logout', { Cookie: cookieIn(guest) })).status).toBe(204);
    }
    expectRefused(await arrive(relay), 600_000);
  });

  test('what is refused before, or is no question for a session, does not count', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '1' });
    for (let n = 0; n < 3; n += 1) {
      expect((await arrive(relay, undefined, { 'Sec-Fetch-Site': 'cross-site' })).status).toBe(403);
      expect((await call(relay.port, '/auth/guest')).status).toBe(405);
    }
    expect((await arrive(relay)).status).toBe(200);
  });

  test('a guest who asks again and again counts for their session', async () => {
    const relay = await limited({ CLIENT_LIMIT_PER_SESSION: '2' });
    const headers = { Cookie: cookieIn(await arrive(relay)) };
    const answers = [await arrive(relay, undefined, headers), await arrive(relay, undefined, headers)];
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expectRefused(await arrive(relay, undefined, headers), 60_000);
    expect((await arrive(relay)).status).toBe(200);
  });

  test('many at once are no way around it', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '5' });
    const answers = await Promise.all(Array.from({ length: 20 }, () => arrive(relay)));
    expect(answers.map(({ status }) => status).sort()).toEqual([
      ...Array(5).fill(200),
      ...Array(15).fill(429),
    ]);
    const guests = answers.filter(({ status }) => status === 200).map(userIn);
    expect(new Set(guests).size).toBe(5);
  });

  test('X-Forwarded-For that nobody trusted wrote is no way around it (G16)', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '2' });
    for (const n of [1, 2]) expect((await arrive(relay, `192.0.2.${n}`)).status).toBe(200);
    expectRefused(await arrive(relay, '192.0.2.3', { Forwarded: 'for=192.0.2.9' }), 600_000);
  });

  test('behind a trusted hop each address has its own, an IPv6 /56 counts as one (G16)', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '2', TRUST_PROXY: '1' });
    for (const n of [1, 2]) {
      // What the client wrote before the hop did is nothing.
      expect((await arrive(relay, `192.0.2.${n}, 2001:db8:0:aa0${n}::${n}`)).status).toBe(200);
    }
    expectRefused(await arrive(relay, '192.0.2.3, 2001:db8:0:aaff:1:2:3:4'), 600_000);
    expect((await arrive(relay, '2001:db8:0:ab00::1')).status).toBe(200);
    expect((await arrive(relay, '198.51.100.1')).status).toBe(200);
    expect((await arrive(relay, '::ffff:198.51.100.1')).status).toBe(200);
    expectRefused(await arrive(relay, '198.51.100.1'), 600_000);
  });

  test('0 is no limit', async () => {
    const relay = await limited({ GUESTS_PER_ADDRESS: '0' });
    for (let n = 0; n < 120; n += 1) expect((await arrive(relay)).status).toBe(200);
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

  test('is that of all instances together, and so are the guests', async () => {
    const environment = await onRedis({ GUESTS_PER_ADDRESS: '3' });
    const [one, two] = [await start(environment), await start(environment)];
    const guest = await arrive(one);
    const headers = { Cookie: cookieIn(guest) };
    const seen = await call(two.port, '/auth/session', { headers });
    expect([seen.status, userIn(seen)]).toEqual([200, userIn(guest)]);
    expect(userIn(await post(two, '/auth/guest', headers))).toBe(userIn(guest));
    expect((await arrive(two)).status).toBe(200);
    expect((await arrive(one)).status).toBe(200);
    expectRefused(await arrive(one), 600_000);
    expectRefused(await arrive(two), 600_000);
    expect((await post(two, '/auth/logout', headers)).status).toBe(204);
    expect((await call(one.port, '/auth/session', { headers })).status).toBe(401);
  });

  test('keeps no address in clear, and no count for ever', async () => {
    await arrive(await start(await onRedis()));
    const keys = (await redis.command('KEYS', 'bot-relay:limit:guests:*')) as string[];
    expect(keys).toEqual([expect.stringMatching(/^bot-relay:limit:guests:[\w-]{43}$/)]);
    expect(await redis.command('PTTL', keys[0] as string)).toBeGreaterThan(0);
  });

  test('lets nobody become a guest while Redis is away: 503 in under a second, and again when it is back (G12)', async () => {
    const relay = await start(await onRedis());
    const headers = { Cookie: cookieIn(await arrive(relay)) };
    redis.pause();
    const from = performance.now();
    const answers = await Promise.all([arrive(relay), post(relay, '/auth/guest', headers)]);
    expect(performance.now() - from).toBeLessThan(1000);
    for (const answer of answers) {
      expectProblem(answer, 503, 'session_store_unavailable');
      expect(answer.headers['retry-after']).toBe('1');
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    redis.resume();
    while ((await arrive(relay)).status !== 200) await sleep(50);
    expect((await post(relay, '/auth/guest', headers)).status).toBe(200);
  });

  test('sessions of another AUTH_MODE do not count, and a guest is nobody there', async () => {
    const environment = await onRedis();
    const guests = await start(environment);
    const users = await start({ ...environment, AUTH_MODE: 'password' });
    const [ada, guest] = [await users.signIn(), await arrive(guests)];
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
    // Each is somebody where it began.
    expect(userIn(await session(users, ada))).toBe('ada');
    expect(userIn(await session(guests, cookieIn(guest)))).toBe(userIn(guest));
  });
});
