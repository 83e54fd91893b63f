import { createHash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { Session } from '../../src/authenticate/sessions/session.ts';
import { type Answer, call, expectNobody, isSignedIn } from '../harness/clients/call.ts';
import {
  type Browser,
  NAVIGATION,
  type Oidc,
  type OidcOptions,
  startOidc,
} from '../harness/relay/oidc-relay.ts';
import { stored } from '../harness/relay/sessions.ts';
import { CLIENT, cancelAtProvider } from '../harness/service/identity-provider.ts';

/** The relay of most tests, and one with other settings. */
let oidc: Oidc;
let own: Oidc | undefined;
beforeAll(async () => {
  oidc = await startOidc();
});
afterEach(async () => {
  await own?.close();
  own = undefined;
});
afterAll(() => oidc.close());
const startOwn = async (options: OidcOptions) => {
  own = await startOidc(options);
  return own.browser();
};
const heldBy = (browser: Browser) => stored(browser.relay.sessions, browser.sessionId() as string);
const lineOf = ({ headers }: Answer) =>
  oidc.relay.logLine(({ requestId, msg }) => msg === 'request' && requestId === headers['x-request-id']);

describe('a sign-in at the identity provider', () => {
  test('redirects to the provider and back to where it began, and begins a session', async () => {
    const browser = oidc.browser();
    const ended = await browser.signIn('ada', { query: '?returnTo=/chat?tab=2', headers: NAVIGATION });
    expect(ended).toMatchObject({ status: 302, body: '', headers: { location: '/chat?tab=2' } });
    expect(ended.headers).toMatchObject({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
    const { status, body } = await browser.session();
    const time = expect.stringMatching(/Z$/);
    expect({ status, ...JSON.parse(body) }).toEqual({
      ...{ status: 200, user: { id: 'ada', name: 'Ada' }, idleExpiresAt: time, absoluteExpiresAt: time },
    });
    expect(browser.flows()).toEqual([]);
    // Nothing listens there, so this message has passed every stage.
    expect((await oidc.relay.send(browser.jar.header())).status).toBe(502);
  });

  test('stores the user, the provider’s session, its beginning and the limits, and nothing else', async () => {
    const before = Date.now();
    const browser = await startOwn({ limits: { idleMs: 60_000, absoluteMs: 120_000 } });
    await browser.signIn();
    const held = await heldBy(browser);
    expect(held).toEqual({
      user: { id: 'ada', name: 'Ada' },
      startedAt: expect.any(Number),
      providerSession: expect.stringMatching(/^[\w-]{10,}$/),
      idleExpiresAt: expect.any(Number),
      absoluteExpiresAt: expect.any(Number),
    });
    const { idleExpiresAt, absoluteExpiresAt } = held as Session;
    expect(absoluteExpiresAt - idleExpiresAt).toBe(60_000);
    expect(idleExpiresAt).toBeGreaterThanOrEqual(before + 60_000);
  });

  test('keeps the ID token with OIDC_KEEP_ID_TOKEN', async () => {
    const browser = await startOwn({ environment: { OIDC_KEEP_ID_TOKEN: 'true' } });
    await browser.signIn();
    const { idToken } = (await heldBy(browser)) ?? {};
    expect(own?.provider.secrets).toContain(idToken);
    expect(idToken?.split('.')).toHaveLength(3);
    expect((await browser.session()).body).not.toContain(idToken);
  });

  test('is logged with its route and its user, and not with its path', async () => {
    const browser = oidc.browser();
    const begun = await browser.login({ query: '?returnTo=/canary-path' });
    const ended = await browser.comeBack(await browser.atProvider(new URL(begun.headers.location as string)));
    const route = '/auth/callback';
    expect(await lineOf(ended)).toMatchObject({ route, status: 302, outcome: 'ok', userId: 'ada' });
    const line = await lineOf(begun);
    expect(line).toMatchObject({ route: '/auth/login', status: 302, outcome: 'ok' });
    expect(line).not.toHaveProperty('userId');
    expect(JSON.stringify(oidc.relay.logs)).not.toContain('canary-path');
    // At the end of the file the log is searched for the code, the state, the verifier and the tokens.
    expect([...oidc.provider.secrets].length).toBeGreaterThanOrEqual(7);
    expect(await oidc.relay.metricsText()).toContain('route="/auth/callback"');
  });

  test('handles HEAD like GET', async () => {
    const { status, headers } = await call(oidc.relay.port, '/auth/login', { method: 'HEAD' });
    expect([status, new URL(headers.location as string).origin]).toEqual([302, oidc.provider.issuer]);
  });
});

describe('the authorization request', () => {
  test('has a new state, nonce and challenge each time, and no secret', async () => {
    const url = await oidc.browser().begin();
    expect(url.origin + url.pathname).toBe(`${oidc.provider.issuer}/auth`);
    const random = expect.stringMatching(/^[\w-]{43}$/);
    expect(Object.fromEntries(url.searchParams)).toEqual({
      response_type: 'code',
      client_id: CLIENT.id,
      redirect_uri: 'http://app.example.com/auth/callback',
      scope: 'openid profile',
      ...{ state: random, nonce: random, code_challenge: random, code_challenge_method: 'S256' },
    });
    const other = await oidc.browser().begin();
    for (const name of ['state', 'nonce', 'code_challenge'])
      expect(other.searchParams.get(name)).not.toBe(url.searchParams.get(name));
  });

  test('is confirmed with the verifier of its challenge (RFC 7636)', async () => {
    const browser = oidc.browser();
    const url = await browser.begin();
    const verifiers: unknown[] = [];
    oidc.provider.provider.once('grant.success', (ctx) => verifiers.push(ctx.oidc.params?.code_verifier));
    await browser.comeBack(await browser.atProvider(url));
    const challenge = createHash('sha256').update(String(verifiers[0])).digest('base64url');
    expect(url.searchParams.get('code_challenge')).toBe(challenge);
  });

  test('has the scopes and the callback URL of the configuration', async () => {
    const environment = {
      PUBLIC_URL: 'https://chat.example.com',
      BASE_PATH: '/chat-api',
      OIDC_SCOPES: 'openid groups',
    };
    const browser = await startOwn({ environment });
    const url = await browser.begin({ query: '?returnTo=/x' });
    expect(url.searchParams.get('redirect_uri')).toBe('https://chat.example.com/chat-api/auth/callback');
    expect(url.searchParams.get('scope')).toBe('openid groups');
    const back = await browser.atProvider(url);
    expect(back.pathname).toBe('/chat-api/auth/callback');
    expect(await browser.comeBack(back)).toMatchObject({ status: 302, headers: { location: '/x' } });
    expect(isSignedIn(await browser.session())).toBe(true);
  });

  test('asks for the password again with prompt=login, and passes no other parameter on', async () => {
    const browser = oidc.browser();
    const url = await browser.begin({ query: '?prompt=login&scope=evil&redirect_uri=https://evil.example' });
    expect(url.searchParams.get('prompt')).toBe('login');
    expect(url.searchParams.getAll('scope')).toEqual(['openid profile']);
    expect(url.searchParams.getAll('redirect_uri')).toEqual(['http://app.example.com/auth/callback']);
    expect((await browser.begin({ query: '?prompt=none' })).searchParams.has('prompt')).toBe(false);
  });
});

describe.each(['strict', 'lax'])('a sign-in with a live session and a %s cookie', (sameSite) => {
  let here: Oidc;
  beforeAll(async () => {
    here = await startOidc({ environment: { COOKIE_SAME_SITE: sameSite } });
  });
  afterAll(() => here.close());
  const signedIn = async () => {
    const browser = here.browser();
    await browser.signIn('ada');
    return { browser, before: browser.sessionId() as string };
  };
  const isStored = async (id: string) => (await stored(here.relay.sessions, id)) !== null;
  /** Expects that the session `before` has ended, and that the browser has another one. */
  async function expectReplaced(browser: Browser, before: string): Promise<void> {
    const after = browser.sessionId() as string;
    expect([after === before, await isStored(before), await isStored(after)]).toEqual([false, false, true]);
  }

  test.each(['ada', 'bob'])('of %s gives another id, and ends the old session', async (name) => {
    const { browser, before } = await signedIn();
    const headers = { Cookie: browser.jar.header() };
    // Another user can sign in at the provider, too.
    await browser.signIn(name, { query: '?prompt=login' });
    await expectReplaced(browser, before);
    expect(JSON.parse((await browser.session()).body).user.id).toBe(name);
    expectNobody(await call(here.relay.port, '/auth/session', { headers }));
  });

  test('that fails does not change the session', async () => {
    const { browser, before } = await signedIn();
    expect((await browser.comeBack(await cancelAtProvider((await browser.begin()).href))).status).toBe(400);
    const url = new URL('http://app.example.com/auth/callback?code=x&state=none');
    expect((await browser.comeBack(url)).status).toBe(400);
    expect([browser.sessionId(), isSignedIn(await browser.session())]).toEqual([before, true]);
  });

  test('that began before another one finished ends the session of that one', async () => {
    const browser = here.browser();
    const [one, other] = [await browser.begin(), await browser.begin({ query: '?returnTo=/other' })];
    await browser.comeBack(await browser.atProvider(one));
    const first = browser.sessionId() as string;
    const ended = await browser.comeBack(await browser.atProvider(other));
    expect(ended).toMatchObject({ status: 302, headers: { location: '/other' } });
    await expectReplaced(browser, first);
  });

  test('that begins at a link on another site ends it, too', async () => {
    const { browser, before } = await signedIn();
    const begun = await browser.login({ headers: { Cookie: browser.jar.header({ crossSite: true }) } });
    await browser.comeBack(await browser.atProvider(new URL(begun.headers.location as string)));
    await expectReplaced(browser, before);
  });
});

describe('the previous session', () => {
  test.each<[string, Record<string, string>, string]>([
    ['http', {}, ''],
    ['https', { PUBLIC_URL: 'https://app.example.com', BASE_PATH: '/chat' }, '; Secure'],
  ])(
    'is named only to the callback, in a cookie over %s that is no credential',
    async (_scheme, more, secure) => {
      const browser = await startOwn({ environment: { ...more, SESSION_ABSOLUTE_HOURS: '2' } });
      const { headers } = await browser.signIn();
      const set = headers['set-cookie']?.find((line) => line.startsWith('bot_relay_before='));
      const flags = `Max-Age=7200; Path=${more.BASE_PATH ?? ''}/auth/callback; Expires=[^;]+; HttpOnly${secure}`;
      expect(set).toMatch(new RegExp(`^bot_relay_before=[\\w-]{43}; ${flags}; SameSite=Lax$`));
      expect(set).not.toContain(browser.sessionId());
    },
  );

  test('is not ended by a made-up cookie, or by the one of a sibling host with a similar name', async () => {
    const browser = oidc.browser();
    await browser.signIn();
    const key = browser.jar.value('bot_relay_before') as string;
    const similar = ['\xa0', '\t', '=', '"', 'x'].flatMap((byte) => [
      `${byte}bot_relay_before`,
      `bot_relay_before${byte}`,
    ]);
    for (const cookie of [
      ...[`bot_relay_before=${'x'.repeat(43)}`, 'bot_relay_before=short', `bot_relay_before=${key}x`],
      ...[`bot_relay_before=${'y'.repeat(43)}; bot_relay_before=${'z'.repeat(43)}`],
      ...similar.map((name) => `${name}=${key}`),
    ]) {
      const other = oidc.browser();
      const back = await other.atProvider(await other.begin());
      const Cookie = `a=b;${cookie}; ${other.jar.header()}`;
      expect([cookie, (await other.comeBack(back, { Cookie })).status]).toEqual([cookie, 302]);
    }
    expect(isSignedIn(await browser.session())).toBe(true);
  });
});

describe('a session id', () => {
  test('that an attacker has set is never used', async () => {
    const browser = oidc.browser();
    browser.jar.set('bot_relay_session', `${'planted-'.repeat(4)}.${'x'.repeat(43)}`);
    await browser.signIn();
    expect(browser.sessionId()).not.toContain('planted-');
    expect(await stored(oidc.relay.sessions, 'planted-'.repeat(4))).toBeNull();
  });

  test('is set only at the end of a sign-in, not at its beginning and not if it fails', async () => {
    const begun = await oidc.browser().login();
    const failed = await call(oidc.relay.port, '/auth/callback?code=x&state=y');
    for (const { headers } of [begun, failed])
      expect(String(headers['set-cookie'])).not.toContain('bot_relay_session');
  });

  test('of one browser stays valid when another browser signs in', async () => {
    const [one, other] = [oidc.browser(), oidc.browser()];
    await one.signIn();
    await other.signIn();
    expect([isSignedIn(await one.session()), isSignedIn(await other.session())]).toEqual([true, true]);
  });
});
