import { afterEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { type Browser, type Oidc, type OidcOptions, startOidc } from '../harness/relay/oidc-relay.ts';
import { stored } from '../harness/relay/sessions.ts';
import { cancelAtProvider } from '../harness/service/identity-provider.ts';

let oidc: Oidc;
afterEach(() => oidc.close());
const start = async (options?: OidcOptions) => {
  oidc = await startOidc(options);
  return oidc.browser();
};
const isStored = async (id: string) => (await stored(oidc.relay.sessions, id)) !== null;
const idOf = (browser: Browser) => browser.sessionId() as string;

describe.each(['strict', 'lax'])('a sign-in with a live session and a %s cookie', (sameSite) => {
  test.each(['ada', 'bob'])(
    'of %s gives another id, and removes the old session from the store',
    async (name) => {
      const browser = await start({ environment: { COOKIE_SAME_SITE: sameSite } });
      await browser.signIn('ada');
      const before = idOf(browser);
      // Another user can sign in at the provider, too.
      await browser.signIn(name, { query: '?prompt=login' });
      const after = idOf(browser);
      expect(after).not.toBe(before);
      expect([await isStored(before), await isStored(after)]).toEqual([false, true]);
      expect(JSON.parse((await browser.session()).body).user.id).toBe(name);
    },
  );

  test('makes a copy of the old cookie useless', async () => {
    const browser = await start({ environment: { COOKIE_SAME_SITE: sameSite } });
    await browser.signIn();
    const copied = browser.jar.header();
    await browser.signIn();
    const answer = await call(oidc.relay.port, '/auth/session', { headers: { Cookie: copied } });
    expectProblem(answer, 401, 'unauthenticated');
  });

  test('that fails does not change the session', async () => {
    const browser = await start({ environment: { COOKIE_SAME_SITE: sameSite } });
    await browser.signIn();
    const before = idOf(browser);
    expect((await browser.comeBack(await cancelAtProvider((await browser.begin()).href))).status).toBe(400);
    const url = new URL('http://app.example.com/auth/callback?code=x&state=none');
    expect((await browser.comeBack(url)).status).toBe(400);
    expect(idOf(browser)).toBe(before);
    expect((await browser.session()).status).toBe(200);
  });

  test('that began before another one finished ends the session of that one', async () => {
    const browser = await start({ environment: { COOKIE_SAME_SITE: sameSite } });
    const [one, other] = [await browser.begin(), await browser.begin({ query: '?returnTo=/other' })];
    await browser.comeBack(await browser.atProvider(one));
    const first = idOf(browser);
    const ended = await browser.comeBack(await browser.atProvider(other));
    expect(ended).toMatchObject({ status: 302, headers: { location: '/other' } });
    expect([await isStored(first), await isStored(idOf(browser))]).toEqual([false, true]);
  });
});

describe('the previous session', () => {
  test('also ends when the sign-in begins at a link on another site', async () => {
    const browser = await start();
    await browser.signIn();
    const first = idOf(browser);
    const begun = await browser.login({ headers: { Cookie: browser.jar.header({ crossSite: true }) } });
    await browser.comeBack(await browser.atProvider(new URL(begun.headers.location as string)));
    expect([await isStored(first), await isStored(idOf(browser))]).toEqual([false, true]);
  });

  test.each<[string, Record<string, string>, string]>([
    ['http', {}, ''],
    ['https', { PUBLIC_URL: 'https://app.example.com', BASE_PATH: '/chat' }, '; Secure'],
  ])(
    'is named only to the callback, in a cookie over %s that is no credential',
    async (_scheme, environment, secure) => {
      const browser = await start({ environment: { ...environment, SESSION_ABSOLUTE_HOURS: '2' } });
      const { headers } = await browser.signIn();
      const set = headers['set-cookie']?.find((line) => line.startsWith('bot_relay_before='));
      const path = `${environment.BASE_PATH ?? ''}/auth/callback`;
      expect(set).toMatch(
        new RegExp(
          `^bot_relay_before=[\\w-]{43}; Max-Age=7200; Path=${path}; Expires=[^;]+; HttpOnly${secure}; SameSite=Lax$`,
        ),
      );
      expect(set).not.toContain(idOf(browser));
    },
  );

  test('is not ended by a made-up cookie', async () => {
    const browser = await start();
    await browser.signIn();
    for (const value of ['x'.repeat(43), 'short', `${'y'.repeat(43)}; bot_relay_before=${'z'.repeat(43)}`]) {
      const other = oidc.browser();
      other.jar.set('bot_relay_before', value);
      expect((await other.signIn()).status).toBe(302);
    }
    expect((await browser.session()).status).toBe(200);
  });
});

describe('a session id', () => {
  test('that an attacker has set is never used', async () => {
    const browser = await start();
    browser.jar.set('bot_relay_session', `${'planted-'.repeat(4)}.${'x'.repeat(43)}`);
    await browser.signIn();
    expect(idOf(browser)).not.toContain('planted-');
    expect(await isStored('planted-'.repeat(4))).toBe(false);
  });

  test('is set only at the end of a sign-in, not at its beginning and not if it fails', async () => {
    const browser = await start();
    const begun = await browser.login();
    const failed = await call(oidc.relay.port, '/auth/callback?code=x&state=y');
    for (const { headers } of [begun, failed])
      expect(String(headers['set-cookie'])).not.toContain('bot_relay_session');
  });

  test('of one browser stays valid when another browser signs in', async () => {
    const one = await start();
    const other = oidc.browser();
    await one.signIn();
    await other.signIn();
    expect([(await one.session()).status, (await other.session()).status]).toEqual([200, 200]);
  });
});
