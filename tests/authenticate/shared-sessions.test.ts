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
import { type Browser, NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';
import { BOT_PATH, CANARY, MESSAGE, OTHER_USER, type TestRelay } from '../harness/relay/relay.ts';
import { idOf, signedCookie, stored } from '../harness/relay/sessions.ts';
import { LAST_CHUNK } from '../harness/service/raw-upstream.ts';

/** Two instances for all tests. */
let all: Instances;
let [relay, redis] = [{} as TestRelay, {} as RedisServer];
let requestsBefore: number;
let own: { close(): Promise<void> } | undefined;
beforeAll(async () => {
  all = await startInstances({ count: 2, shared: true });
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
          headers: { 'Content-Type': 'application/json', Cookie: mine },
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
    const [left, expired] = [await relay.signIn(), await relay.signIn()];
    for (const cookie of [left, expired]) expect(await isLive(0, cookie)).toBe(true);
    expect((await all.post(1, '/auth/logout', left)).status).toBe(204);
    await redis.command('DEL', nameOf(expired));
    advanceClocks({ date: 31 * 60_000 });
    for (const cookie of [left, expired]) expect(await isLive(0, cookie)).toBe(false);
    expect((await lost()) - before).toBe(0);
  });
});

describeWithRedis('a sign-in at the identity provider, at several instances', () => {
  let oidc: Oidc;
  let browser: Browser;
  beforeAll(async () => {
    // Their secrets are being rotated.
    const [one, other] = [CANARY.sessionSecret, 'canary-new-session-secret-abcdef-9876543210'];
    const environment = [`${one},${other}`, `${other},${one}`].map((SESSION_SECRETS) => ({
      ...{ REDIS_URL: redis.url, SESSION_SECRETS },
    }));
    oidc = await startOidc({ environment });
  });
  beforeEach(() => {
    browser = oidc.browser();
  });
  afterAll(() => oidc.close());

  test('that begins at one and finishes at another ends the previous session at both', async () => {
    await browser.signIn();
    const before = browser.sessionId() as string;
    const url = await browser.begin({ query: '?returnTo=/chat' });
    browser.relay = oidc.relays[1] as TestRelay;
    const ended = await browser.comeBack(await browser.atProvider(url));
    expect(ended).toMatchObject({ status: 302, headers: { location: '/chat' } });
    for (const one of oidc.relays) {
      expect(await stored(one.parts.sessions, before)).toBeNull();
      browser.relay = one;
      expect(isSignedIn(await browser.session())).toBe(true);
    }
  });

  test('signs nobody in while Redis is out of reach, answers with JSON or a page, and works afterwards', async () => {
    const back = await browser.atProvider(await browser.begin());
    await redis.stop();
    expectProblem(await browser.comeBack(back), 503, 'session_store_unavailable');
    const page = await browser.login({ query: '?returnTo=/chat', headers: NAVIGATION });
    expect(page).toMatchObject({
      status: 503,
      headers: { 'content-type': 'text/html; charset=utf-8', 'retry-after': '1' },
    });
    expect(page.body).toContain('href="/auth/login?returnTo=%2Fchat"');
    expect(browser.sessionId()).toBeUndefined();
    await redis.start();
    await until(async () => (await oidc.relay.parts.redis?.answers()) === true);
    // The code is not used and the sign-in not over, so a reload finishes it.
    expect((await browser.comeBack(back)).status).toBe(302);
    expect(isSignedIn(await browser.session())).toBe(true);
  });
});
