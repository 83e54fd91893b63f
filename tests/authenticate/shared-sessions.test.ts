import { afterAll, afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session.ts';
import { ENDED, MARK_MS } from '../../src/authenticate/sessions/session-script.ts';
import { call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { CHANNEL, SUSPEND_PATH } from '../harness/clients/suspend.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer } from '../harness/redis/redis.ts';
import { type Instances, type InstancesOptions, startInstances } from '../harness/relay/instances.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { BOT_PATH, CANARY, MESSAGE, OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf, signedCookie } from '../harness/relay/sessions.ts';
import { LAST_CHUNK } from '../harness/service/raw-upstream.ts';

const JSON_TYPE = { 'Content-Type': 'application/json' };

/** Two instances for all tests. */
let all: Instances;
let [relay, redis] = [{} as TestRelay, {} as RedisServer];
let requestsBefore: number;
let own: { close(): Promise<void> } | undefined;
beforeAll(async () => {
  all = await startInstances({ count: 2, shared: true, environment: { METRICS_PORT: '9090' } });
  relay = all.relays[0] as TestRelay;
  redis = all.redis as RedisServer;
});
beforeEach(() => {
  requestsBefore = all.upstream.requests.length;
});
afterEach(async () => {
  jest.restoreAllMocks();
  await own?.close();
  own = undefined;
});
afterAll(() => all.close());

const startOwn = async (options: Partial<InstancesOptions>) => {
  const instances = await startInstances({ count: 1, shared: true, ...options });
  own = instances;
  return instances;
};
const isLive = async (at: number, cookie: string) => isSignedIn(await all.get(at, '/auth/session', cookie));
const sent = () => all.upstream.requests.length - requestsBefore;
const nameOf = (cookie: string) => `bot-relay:session:${sessionKey(idOf(cookie))}`;
const textOf = async (cookie: string) => (await redis.command('GET', nameOf(cookie))) as string;
const store = (cookie: string, text: string) => redis.command('SET', nameOf(cookie), text, 'KEEPTTL');

describeWithRedis('sessions of several instances', () => {
  test('are valid at each instance, and end at each when one signs out', async () => {
    const { stream, get, post } = all;
    const cookie = await relay.signIn();
    const shown = await get(0, '/auth/session', cookie);
    expect(await get(1, '/auth/session', cookie)).toMatchObject({ status: 200, body: shown.body });
    (await stream(1, cookie)).upstream.write(LAST_CHUNK);
    // A message at one instance extends the session at the other one, too.
    const extended = JSON.parse((await get(0, '/auth/session', cookie)).body);
    const before = JSON.parse(shown.body);
    expect(Date.parse(extended.idleExpiresAt)).toBeGreaterThan(Date.parse(before.idleExpiresAt));
    expect(extended.absoluteExpiresAt).toBe(before.absoluteExpiresAt);
    expect((await post(1, '/auth/logout', cookie)).status).toBe(204);
    expectNobody(await get(0, '/auth/session', cookie));
    expectProblem(await post(0, '/auth/logout', cookie), 401, 'unauthenticated');
  });

  test('stay valid while the secrets are rotated, one instance after the other', async () => {
    const [OLD, NEW] = [CANARY.sessionSecret, 'canary-new-session-secret-abcdef-9876543210'];
    const environment = [OLD, `${OLD},${NEW}`, `${NEW},${OLD}`, NEW].map((SESSION_SECRETS) => ({
      SESSION_SECRETS,
    }));
    const { relays, get } = await startOwn({ count: 4, environment });
    const [ofOld, ofBoth, ofNew] = await Promise.all(relays.slice(0, 3).map((one) => one.signIn()));
    const seen: unknown[] = [];
    for (const cookie of [ofOld, ofBoth, ofNew] as string[]) {
      const secret = cookie === ofNew ? NEW : OLD;
      expect(decodeURIComponent(cookie)).toBe(decodeURIComponent(signedCookie(idOf(cookie), secret)));
      const answers = await Promise.all([0, 1, 2, 3].map((at) => get(at, '/auth/session', cookie)));
      seen.push(answers.map(isSignedIn));
    }
    // Instances before and after each step of the rotation can read each other's cookies.
    expect(seen).toEqual([
      [true, true, true, false],
      [true, true, true, false],
      [false, true, true, true],
    ]);
  });
});

/** Marks all sessions of a user as ended, as an instance does that is lost before it removes them. */
async function mark(user: string, server = redis): Promise<void> {
  // The Redis of this machine has the same clock.
  await server.command('ZADD', `bot-relay:user-sessions:${user}`, String(Date.now() + MARK_MS), ENDED);
}

describeWithRedis('a session that was ended with all of its user by an instance that was lost', () => {
  const RUN_PATH = `${BOT_PATH.replace('/sse', '/run')}?custom_channel_id=c1&custom_message_id=message-0000000001`;

  test.each([
    ['a message', 'POST', BOT_PATH],
    ['a live stream', 'GET', `${BOT_PATH}?custom_channel_id=c1`],
    ['the run of a message', 'GET', RUN_PATH],
    ['a suspend', 'POST', SUSPEND_PATH + CHANNEL],
  ])(
    'is refused for %s, also of an unknown bot, and those of others are not',
    async (_what, method, path) => {
      const [mine, bobs] = [await relay.signIn(), await relay.signIn(OTHER_USER)];
      const ask = (to = path) =>
        call(relay.port, to, {
          method,
          headers: { ...JSON_TYPE, Cookie: mine },
          ...(path === BOT_PATH && { body: MESSAGE }),
        });
      const unknown = path.replace('helper', 'nobody');
      if (unknown !== path) expectProblem(await ask(unknown), 404, 'unknown_bot');
      await mark('ada');
      expectProblem(await ask(), 401, 'unauthenticated');
      expectProblem(await ask(unknown), 401, 'unauthenticated');
      expect(sent()).toBe(0);
      expect([await isLive(0, mine), await isLive(0, bobs)]).toEqual([false, true]);
    },
  );

  test('finishes the logout of all sessions that has failed', async () => {
    await redis.command('FLUSHALL');
    const [mine, other] = [await relay.signIn(), await relay.signIn()];
    await mark('ada');
    const answer = await all.post(0, '/auth/logout-all', mine);
    expect(answer.status).toBe(204);
    expect(String(answer.headers['set-cookie'])).toContain('Expires=Thu, 01 Jan 1970');
    expect([await textOf(mine), await textOf(other)]).toEqual(['removed', 'removed']);
  });

  test('is replaced for a guest who comes back', async () => {
    const guests = await startOwn({ environment: { AUTH_MODE: 'guest' } });
    const ask = (Cookie = '') => guests.post(0, '/auth/guest', Cookie);
    const cookieOf = ({ headers }: Awaited<ReturnType<typeof ask>>) =>
      headers['set-cookie']?.[0]?.split(';')[0];
    const cookie = cookieOf(await ask());
    const sets = await guests.redis?.command('KEYS', 'bot-relay:user-sessions:*');
    await mark(String(sets).replace('bot-relay:user-sessions:', ''), guests.redis);
    const answer = await ask(cookie);
    expect([answer.status, cookieOf(answer) === cookie]).toEqual([200, false]);
    expect((await ask(cookieOf(answer))).headers['set-cookie']).toBeUndefined();
  });
});

describeWithRedis('an attacker who can write to Redis', () => {
  /** Expects that no route finds a session by the cookie, and that nothing reached the bot service. */
  async function expectNoSession(cookie: string): Promise<void> {
    expectNobody(await all.get(0, '/auth/session', cookie));
    expectProblem(await all.post(0, '/auth/logout-all', cookie), 401, 'unauthenticated');
    expect((await relay.send(cookie)).status).toBe(401);
    expect(sent()).toBe(0);
  }

  test('cannot use the session of another user by copying it, or its encrypted part, to their own', async () => {
    const [adas, bobs] = [await relay.signIn(), await relay.signIn(OTHER_USER)];
    const [text, bobsText] = [await textOf(adas), await textOf(bobs)];
    for (const copied of [
      text,
      JSON.stringify({ ...JSON.parse(bobsText), sealed: JSON.parse(text).sealed }),
    ]) {
      await store(bobs, copied);
      await expectNoSession(bobs);
    }
    expect(JSON.parse((await all.get(0, '/auth/session', adas)).body)).toMatchObject({ user: { id: 'ada' } });
    const warnings = relay.logs.filter(({ msg }) => String(msg).includes('cannot read a stored session'));
    expect(warnings).toEqual([expect.objectContaining({ level: 'warn' })]);
  });

  test('can extend a session at most to its absolute limit', async () => {
    const limits = { idleMs: 1_200_000, absoluteMs: 1_200_000 };
    const shortLived = await startRelay(all.upstream.url, { REDIS_URL: redis.url }, limits);
    own = shortLived;
    const cookie = await shortLived.signIn();
    const shown = async () => JSON.parse((await all.get(0, '/auth/session', cookie)).body);
    const { absoluteExpiresAt } = await shown();
    const never = { idleExpiresAt: 9_000_000_000_000, absoluteExpiresAt: 9_000_000_000_000 };
    const text = JSON.stringify({ ...JSON.parse(await textOf(cookie)), ...never });
    await redis.command('SET', nameOf(cookie), text);
    expect(await shown()).toMatchObject({ absoluteExpiresAt });
    advanceClocks({ date: Date.parse(absoluteExpiresAt) - Date.now() });
    await expectNoSession(cookie);
  });
});

describeWithRedis('the metric of lost sessions', () => {
  const lost = async () => total(await relay.metricsText(), 'bot_relay_sessions_lost_total');

  test('counts each session once that was in use when Redis was emptied', async () => {
    const before = await lost();
    const cookies = [await relay.signIn(), await relay.signIn(), await relay.signIn()];
    for (const cookie of cookies) expect(await isLive(0, cookie)).toBe(true);
    await redis.command('FLUSHALL');
    for (const cookie of [...cookies, ...cookies]) expect(await isLive(0, cookie)).toBe(false);
    expect((await lost()) - before).toBe(3);
  });

  test('counts no session that was signed out at another instance, or has expired', async () => {
    const before = await lost();
    const brief = await startRelay(all.upstream.url, { REDIS_URL: redis.url }, { idleMs: 1_000 });
    own = brief;
    const [left, forgotten] = [await relay.signIn(), await brief.signIn()];
    for (const cookie of [left, forgotten]) expect(await isLive(0, cookie)).toBe(true);
    expect((await all.post(1, '/auth/logout', left)).status).toBe(204);
    await until(async () => (await redis.command('EXISTS', nameOf(forgotten))) === 0);
    for (const cookie of [left, forgotten]) expect(await isLive(0, cookie)).toBe(false);
    expect((await lost()) - before).toBe(0);
  });
});
