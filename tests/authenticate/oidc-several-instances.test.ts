import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { type Browser, NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { stored } from '../harness/relay/sessions.ts';

let redis: RedisServer;
let oidc: Oidc;
let browser: Browser;
afterAll(async () => {
  await oidc.close();
  stopRedis();
});
beforeAll(async () => {
  redis = await startRedis();
  // Their secrets are being rotated.
  const [one, other] = [
    'canary-session-secret-0123456789-abcdef',
    'canary-new-session-secret-abcdef-9876543210',
  ];
  const environment = [`${one},${other}`, `${other},${one}`];
  oidc = await startOidc({
    environment: environment.map((SESSION_SECRETS) => ({ REDIS_URL: redis.url, SESSION_SECRETS })),
  });
});
beforeEach(() => {
  browser = oidc.browser();
});
const at = (instance: number) => {
  browser.relay = oidc.relays[instance] as TestRelay;
};

describeWithRedis('a sign-in at several instances with one Redis', () => {
  test('that begins at one and finishes at another ends the previous session at both', async () => {
    await browser.signIn();
    const before = browser.sessionId() as string;
    const url = await browser.begin({ query: '?returnTo=/chat' });
    at(1);
    const ended = await browser.comeBack(await browser.atProvider(url));
    expect(ended).toMatchObject({ status: 302, headers: { location: '/chat' } });
    for (const relay of oidc.relays) {
      expect(await stored(relay.sessions, before)).toBeNull();
      browser.relay = relay;
      expect(isSignedIn(await browser.session())).toBe(true);
    }
  });

  test('cannot be repeated: the same callback at another instance signs nobody in', async () => {
    const back = await browser.atProvider(await browser.begin());
    const copy = oidc.browser(1);
    for (const name of browser.flows()) copy.jar.set(name, browser.jar.value(name) as string);
    expect((await browser.comeBack(back)).status).toBe(302);
    expectProblem(await copy.comeBack(back), 400, 'sign_in_failed');
    expect(copy.sessionId()).toBeUndefined();
  });

  test('signs nobody in while Redis is out of reach, answers with JSON or a page, and works afterwards', async () => {
    const back = await browser.atProvider(await browser.begin());
    await redis.stop();
    const problem = await browser.comeBack(back);
    expectProblem(problem, 503, 'session_store_unavailable');
    const page = await browser.login({ query: '?returnTo=/chat', headers: NAVIGATION });
    expect(page).toMatchObject({
      status: 503,
      headers: { 'content-type': 'text/html; charset=utf-8', 'retry-after': '1' },
    });
    expect(page.body).toContain('href="/auth/login?returnTo=%2Fchat"');
    expect(browser.sessionId()).toBeUndefined();
    await redis.start();
    await until(async () => (await oidc.relay.redis?.answers()) === true);
    // The code is not used and the sign-in not over, so a reload finishes it.
    expect((await browser.comeBack(back)).status).toBe(302);
    expect(isSignedIn(await browser.session())).toBe(true);
  });
});
