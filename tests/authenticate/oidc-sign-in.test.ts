import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Session } from '../../src/authenticate/sessions/session.ts';
import { Problem, type ProblemCode } from '../../src/errors.ts';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import {
  type Browser,
  NAVIGATION,
  type Oidc,
  type OidcOptions,
  startOidc,
} from '../harness/relay/oidc-relay.ts';
import { stored } from '../harness/relay/sessions.ts';
import { CLIENT, cancelAtProvider } from '../harness/service/identity-provider.ts';

const MINUTE = 60_000;
const FLOW = 'bot_relay_sign_in_';

/** The relay of most tests, and one with other settings. */
let oidc: Oidc;
let own: Oidc | undefined;
let browser: Browser;
let askedBefore: number;
beforeAll(async () => {
  oidc = await startOidc();
});
beforeEach(() => {
  browser = oidc.browser();
  askedBefore = oidc.provider.asked.length;
});
afterEach(async () => {
  jest.restoreAllMocks();
  jest.useRealTimers();
  await own?.close();
  own = undefined;
});
afterAll(() => oidc.close());

const startOwn = async (options: OidcOptions) => {
  own = await startOidc(options);
  return own.browser();
};
const lineOf = ({ headers }: Answer) =>
  oidc.relay.logLine(({ requestId, msg }) => msg === 'request' && requestId === headers['x-request-id']);
const to = (path: string) => ({ query: `?returnTo=${path}` });
const stateOf = ({ searchParams }: URL) => searchParams.get('state') as string;
const callback = (query: string) => new URL(`http://app.example.com/auth/callback${query}`);
const signedIn = async () => isSignedIn(await browser.session());
/** The callback of a sign-in that has just begun, at the end of which the user has signed in at the provider. */
const goodCallback = async () => browser.atProvider(await browser.begin());
const askedForTokens = () =>
  oidc.provider.asked.slice(askedBefore).filter((path) => path === '/token').length;

/** What stays real where only the date is moved. */
const REAL = [
  ...(['hrtime', 'performance', 'nextTick', 'queueMicrotask', 'setImmediate', 'clearImmediate'] as const),
  ...(['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] as const),
];

/** The callback's URL with other parameters; undefined ones are removed. */
function changed(url: URL, parameters: Record<string, string | undefined>): URL {
  const other = new URL(url);
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined) other.searchParams.delete(name);
    else other.searchParams.set(name, value);
  }
  return other;
}
/** The callback's URL of a sign-in that has just begun, with these parameters of the provider. */
const answered = async (parameters: Record<string, string>) =>
  changed(callback(''), { state: stateOf(await browser.begin()), iss: oidc.provider.issuer, ...parameters });

/** Expects a refusal, and its line in the log: `info` for what users, or attackers at the callback, can cause. */
async function expectRefusal(
  answer: Answer,
  cause: unknown,
  status = 400,
  code: ProblemCode = 'sign_in_failed',
) {
  const problem = expectProblem(answer, status, code);
  expect(answer.headers['retry-after']).toBe(status === 503 ? '5' : undefined);
  expect(answer.headers).not.toHaveProperty('location');
  expect(String(answer.headers['set-cookie'])).not.toContain('bot_relay_session');
  const line = await lineOf(answer);
  expect(line).toMatchObject({ route: '/auth/callback', outcome: code, cause });
  if (status === 400) expect(line.level).toBe('info');
  return problem;
}

describe('a sign-in at the identity provider', () => {
  test('redirects to the provider and back to where it began, and begins a session', async () => {
    const ended = await browser.signIn('ada', { ...to('/chat?tab=2'), headers: NAVIGATION });
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
    const here = await startOwn({ limits: { idleMs: 60_000, absoluteMs: 120_000 } });
    await here.signIn();
    const held = await stored(here.relay.parts.sessions, here.sessionId() as string);
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

  test('is logged with its route and its user, and not with its path', async () => {
    const begun = await browser.login(to('/canary-path'));
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

  test('has only GET and HEAD, and no other paths, also for a navigation', async () => {
    const { port } = oidc.relay;
    const head = await call(port, '/auth/login', { method: 'HEAD' });
    expect([head.status, new URL(head.headers.location as string).origin]).toEqual([
      302,
      oidc.provider.issuer,
    ]);
    for (const path of ['/auth/login', '/auth/callback']) {
      for (const headers of [{}, NAVIGATION]) {
        const answer = await call(port, path, { method: 'POST', headers });
        expect([path, answer.status, answer.headers.allow]).toEqual([path, 405, 'GET, HEAD']);
        expect(answer.headers).not.toHaveProperty('set-cookie');
      }
    }
    for (const path of ['/auth/login/', '/auth/callback/x', '/AUTH/login', '/auth/loginx'])
      expectProblem(await call(port, path, { headers: NAVIGATION }), 404, 'not_found');
  });
});

describe('the authorization request', () => {
  test('has a new state, nonce and challenge each time, and no secret', async () => {
    const url = await browser.begin();
    expect(url.origin + url.pathname).toBe(`${oidc.provider.issuer}/auth`);
    const random = expect.stringMatching(/^[\w-]{43}$/);
    expect(Object.fromEntries(url.searchParams)).toEqual({
      response_type: 'code',
      client_id: CLIENT.id,
      redirect_uri: 'http://app.example.com/auth/callback',
      scope: 'openid profile',
      ...{ state: random, nonce: random, code_challenge: random, code_challenge_method: 'S256' },
    });
    const other = await browser.begin();
    for (const name of ['state', 'nonce', 'code_challenge'])
      expect(other.searchParams.get(name)).not.toBe(url.searchParams.get(name));
  });

  test('has the scopes and the callback URL of the configuration', async () => {
    const urls = { PUBLIC_URL: 'https://chat.example.com', BASE_PATH: '/chat-api' };
    const here = await startOwn({ environment: { ...urls, OIDC_SCOPES: 'openid groups' } });
    const url = await here.begin(to('/x'));
    expect(url.searchParams.get('redirect_uri')).toBe('https://chat.example.com/chat-api/auth/callback');
    expect(url.searchParams.get('scope')).toBe('openid groups');
    const back = await here.atProvider(url);
    expect(back.pathname).toBe('/chat-api/auth/callback');
    expect(await here.comeBack(back)).toMatchObject({ status: 302, headers: { location: '/x' } });
    expect(isSignedIn(await here.session())).toBe(true);
  });

  test('asks for the password again with prompt=login, and passes no other parameter on', async () => {
    const url = await browser.begin({ query: '?prompt=login&scope=evil&redirect_uri=https://evil.example' });
    expect(url.searchParams.get('prompt')).toBe('login');
    expect(url.searchParams.getAll('scope')).toEqual(['openid profile']);
    expect(url.searchParams.getAll('redirect_uri')).toEqual(['http://app.example.com/auth/callback']);
    expect((await browser.begin({ query: '?prompt=none' })).searchParams.has('prompt')).toBe(false);
  });
});

describe.each(['strict', 'lax'])('a sign-in with a live session and a %s cookie', (sameSite) => {
  let here: Oidc;
  let before: string;
  beforeAll(async () => {
    here = await startOidc({ environment: { COOKIE_SAME_SITE: sameSite } });
  });
  beforeEach(async () => {
    browser = here.browser();
    await browser.signIn('ada');
    before = browser.sessionId() as string;
  });
  afterAll(() => here.close());
  const isStored = async (id: string) => (await stored(here.relay.parts.sessions, id)) !== null;
  /** Expects that the session `old` has ended, and that the browser has another one. */
  async function expectReplaced(old = before): Promise<void> {
    const after = browser.sessionId() as string;
    expect([after === old, await isStored(old), await isStored(after)]).toEqual([false, false, true]);
  }

  test.each(['ada', 'bob'])('of %s gives another id, and ends the old session', async (name) => {
    const headers = { Cookie: browser.jar.header() };
    // Another user can sign in at the provider, too.
    await browser.signIn(name, { query: '?prompt=login' });
    await expectReplaced();
    expect(JSON.parse((await browser.session()).body).user.id).toBe(name);
    expectNobody(await call(here.relay.port, '/auth/session', { headers }));
  });

  test('that fails does not change the session', async () => {
    expect((await browser.comeBack(await cancelAtProvider((await browser.begin()).href))).status).toBe(400);
    expect((await browser.comeBack(callback('?code=x&state=none'))).status).toBe(400);
    expect([browser.sessionId(), await signedIn()]).toEqual([before, true]);
  });

  test('that began before another one finished ends the session of that one', async () => {
    browser = here.browser();
    const [one, other] = [await browser.begin(), await browser.begin(to('/other'))];
    await browser.comeBack(await browser.atProvider(one));
    const first = browser.sessionId() as string;
    const ended = await browser.comeBack(await browser.atProvider(other));
    expect(ended).toMatchObject({ status: 302, headers: { location: '/other' } });
    await expectReplaced(first);
  });

  test('that begins at a link on another site ends it, too', async () => {
    const begun = await browser.login({ headers: { Cookie: browser.jar.header({ crossSite: true }) } });
    await browser.comeBack(await browser.atProvider(new URL(begun.headers.location as string)));
    await expectReplaced();
  });
});

describe('the previous session', () => {
  test.each<[string, Record<string, string>, string]>([
    ['http', {}, ''],
    ['https', { PUBLIC_URL: 'https://app.example.com', BASE_PATH: '/chat' }, '; Secure'],
  ])(
    'is named only to the callback, in a cookie over %s that is no credential',
    async (_scheme, more, secure) => {
      const here = await startOwn({ environment: { ...more, SESSION_ABSOLUTE_HOURS: '2' } });
      const { headers } = await here.signIn();
      const set = headers['set-cookie']?.find((line) => line.startsWith('bot_relay_before='));
      const flags = `Max-Age=7200; Path=${more.BASE_PATH ?? ''}/auth/callback; Expires=[^;]+; HttpOnly${secure}`;
      expect(set).toMatch(new RegExp(`^bot_relay_before=[\\w-]{43}; ${flags}; SameSite=Lax$`));
      expect(set).not.toContain(here.sessionId());
    },
  );

  test('is not ended by a made-up cookie, or by the one of a sibling host with a similar name', async () => {
    await browser.signIn();
    const key = browser.jar.value('bot_relay_before') as string;
    for (const cookie of [
      ...[`bot_relay_before=${'x'.repeat(43)}`, 'bot_relay_before=short', `bot_relay_before=${key}x`],
      ...['\xa0bot_relay_before', 'xbot_relay_before', 'bot_relay_before\t'].map((name) => `${name}=${key}`),
    ]) {
      const other = oidc.browser();
      const back = await other.atProvider(await other.begin());
      const Cookie = `a=b;${cookie}; ${other.jar.header()}`;
      expect([cookie, (await other.comeBack(back, { Cookie })).status]).toEqual([cookie, 302]);
    }
    expect(await signedIn()).toBe(true);
  });

  test('has never an id that an attacker has set', async () => {
    browser.jar.set('bot_relay_session', `${'planted-'.repeat(4)}.${'x'.repeat(43)}`);
    await browser.signIn();
    expect(browser.sessionId()).not.toContain('planted-');
    expect(await stored(oidc.relay.parts.sessions, 'planted-'.repeat(4))).toBeNull();
  });
});

describe('the cookie of a sign-in', () => {
  test('is not read under a similar name, as without __Host- over https, which a sibling host can set', async () => {
    const here = await startOwn({ environment: { PUBLIC_URL: 'https://chat.example.com' } });
    const back = await here.atProvider(await here.begin());
    const name = FLOW + stateOf(back);
    const value = here.jar.value(`__Host-${name}`);
    for (const other of [name, `x__Host-${name}`, `__Host-__Host-${name}`]) {
      const answer = await here.comeBack(back, { Cookie: `a=b; ${other}=${value}` });
      expectProblem(answer, 400, 'sign_in_failed');
    }
    expect((await here.comeBack(back)).status).toBe(302);
  });

  test.each([false, true])(
    'has its flags, lives ten minutes, and is removed at the end; over https: %s',
    async (isSecure) => {
      const here = await startOwn({
        environment: { PUBLIC_URL: `http${isSecure ? 's' : ''}://chat.example.com` },
      });
      const { headers } = await here.login();
      const [pair = '', ...flags] = headers['set-cookie']?.[0]?.split('; ') ?? [];
      const url = new URL(headers.location as string);
      const name = `${isSecure ? '__Host-' : ''}${FLOW}${stateOf(url)}`;
      expect([headers['set-cookie']?.length, pair.split('=')[0]]).toEqual([1, name]);
      expect(flags.filter((flag) => !flag.startsWith('Expires=')).sort()).toEqual([
        ...['HttpOnly', 'Max-Age=600', 'Path=/', 'SameSite=Lax', ...(isSecure ? ['Secure'] : [])],
      ]);
      const ended = await here.comeBack(await here.atProvider(url));
      expect(ended.headers['set-cookie']?.[0]).toMatch(
        new RegExp(`^${name}=; .*${isSecure ? 'Secure' : ''}`),
      );
      expect(isSignedIn(await here.session())).toBe(true);
    },
  );

  test.each([
    ['is valid for ten minutes', 10 * MINUTE - 5_000, 302],
    ['expires then, also if the browser has kept the cookie', 10 * MINUTE + 1_000, 400],
  ])('%s', async (_, after, status) => {
    const url = await browser.begin();
    jest.useFakeTimers({ now: Date.now() + after, doNotFake: REAL });
    expect((await browser.comeBack(await browser.atProvider(url))).status).toBe(status);
  });

  test('signs nobody in if any part of it was changed, or if it is that of another sign-in', async () => {
    const [back, other] = [await goodCallback(), await browser.begin()];
    const [name, otherName] = [FLOW + stateOf(back), FLOW + stateOf(other)];
    const good = browser.jar.value(name) as string;
    const parts = good.split('.');
    const changed = [0, 2, 3, 4].map((at) =>
      parts
        .map((one, n) => (n === at ? one.slice(0, 5) + (one[5] === 'A' ? 'B' : 'A') + one.slice(6) : one))
        .join('.'),
    );
    const another = browser.jar.value(otherName) as string;
    for (const text of [...changed, another, 'x', 'a.b.c.d.e', good.slice(0, -3), `${good}AAAA`]) {
      browser.jar.set(name, text);
      await expectRefusal(await browser.comeBack(back), 'no_such_sign_in');
    }
    browser.jar.set(name, good);
    expect((await browser.comeBack(back)).status).toBe(302);
  });

  test('stays small with the longest returnTo, and its content is encrypted', async () => {
    const long = `/${'canary-path-'.repeat(42)}`.slice(0, 512);
    const { headers } = await browser.login(to(long));
    const [cookie = ''] = headers['set-cookie'] ?? [];
    expect(cookie.length).toBeLessThan(1500);
    const readable = cookie.split('.').map((part) => Buffer.from(part, 'base64url').toString('latin1'));
    expect(cookie + readable.join()).not.toMatch(/canary-path|verifier|nonce/);
    const back = await browser.atProvider(new URL(headers.location as string));
    expect((await browser.comeBack(back)).headers.location).toBe(long);
    // The JSON of this one is longer.
    const other = await browser.login(to(`/${encodeURIComponent('"'.repeat(511))}`));
    expect(other.headers['set-cookie']?.[0]?.length).toBeLessThan(1500);
  });

  test('is one for each tab, which returns to its own path, and of five at a time: a sixth removes the oldest', async () => {
    const urls: URL[] = [];
    for (let n = 0; n < 7; n += 1) urls.push(await browser.begin(to(`/${n}`)));
    expect(browser.flows()).toEqual(urls.slice(2).map((url) => FLOW + stateOf(url)));
    const ended = [];
    // They finish in another order than they began.
    for (const url of urls.toReversed()) ended.unshift(await browser.comeBack(await browser.atProvider(url)));
    const seen = ended.map(({ status, headers }) => headers.location ?? status);
    expect(seen).toEqual([400, 400, '/2', '/3', '/4', '/5', '/6']);
  });

  test('is removed a few at a time where there are far too many, so that proxies accept the headers', async () => {
    const names = Array.from({ length: 40 }, (_, n) => FLOW + String(n).padStart(43, '0'));
    for (const name of names) browser.jar.set(name, 'begun-in-another-tab');
    const { headers } = await browser.login();
    const dropped = (headers['set-cookie'] ?? []).filter((line) => line.includes('=; '));
    expect(dropped.map((line) => line.split('=')[0])).toEqual(names.slice(0, 5));
    while (browser.flows().length > 5) {
      const before = browser.flows().length;
      await browser.login();
      expect(browser.flows().length).toBeLessThan(before);
    }
  });

  test('is not mixed up: the code of one with the state of another signs nobody in', async () => {
    const [mixed, other] = [await goodCallback(), await browser.begin()];
    mixed.searchParams.set('state', stateOf(other));
    await expectRefusal(await browser.comeBack(mixed), 'invalid_grant');
    expect(await signedIn()).toBe(false);
  });
});

describe('a callback', () => {
  test('that is repeated signs nobody in, and does not end the session', async () => {
    const back = await goodCallback();
    const thief = oidc.browser();
    for (const name of browser.flows()) thief.jar.set(name, browser.jar.value(name) as string);
    expect((await browser.comeBack(back)).status).toBe(302);
    await expectRefusal(await browser.comeBack(back), 'no_such_sign_in');
    expect([await signedIn(), askedForTokens()]).toEqual([true, 1]);
    // With a copy of its cookie, the provider refuses it.
    await expectRefusal(await thief.comeBack(back), 'invalid_grant');
    expectNobody(await thief.session());
  });

  test('without its cookie, as in another browser, does not ask the provider at all', async () => {
    const back = await goodCallback();
    await expectRefusal(await oidc.browser().comeBack(back), 'no_such_sign_in');
    expect(askedForTokens()).toBe(0);
    // The browser in which it began can still finish it.
    expect((await browser.comeBack(back)).status).toBe(302);
  });

  test.each([
    ['no state', { state: undefined }, 'no_such_sign_in'],
    ['another state', { state: 'x'.repeat(43) }, 'no_such_sign_in'],
    ['no issuer', { iss: undefined }, 'OAUTH_INVALID_RESPONSE'],
    ['the issuer of another provider', { iss: 'https://evil.example' }, 'OAUTH_INVALID_RESPONSE'],
    ['no code', { code: undefined }, 'OAUTH_INVALID_RESPONSE'],
    ['an unknown code', { code: 'canary-code-that-nobody-gave' }, 'invalid_grant'],
    ['a response', { response: 'e30.e30.' }, 'OAUTH_INVALID_RESPONSE'],
    ['an ID token', { id_token: 'e30.e30.' }, 'OAUTH_UNSUPPORTED_OPERATION'],
  ])('with %s signs nobody in', async (_, parameters, cause) => {
    await expectRefusal(await browser.comeBack(changed(await goodCallback(), parameters)), cause);
    expectNobody(await browser.session());
    expect(askedForTokens()).toBe(cause === 'invalid_grant' ? 1 : 0);
  });

  test.each(['state', 'code', 'iss', 'error'])('with two of %s signs nobody in', async (name) => {
    const back = await goodCallback();
    const good = back.searchParams.get(name) ?? 'access_denied';
    for (const one of [good, 'x'.repeat(43)]) back.searchParams.append(name, one);
    await expectRefusal(await browser.comeBack(back), expect.any(String));
    expectNobody(await browser.session());
    expect(askedForTokens()).toBe(0);
  });

  test('with any odd query is refused like any other', async () => {
    for (const query of [
      `code=${'a'.repeat(8_000)}`,
      '__proto__=1&constructor=2&toString=3',
      '%ff%fe&=&&=%&state&code=%00%0d%0aSet-Cookie:x=1',
      'state[]=a&code[]=b',
    ]) {
      for (const path of [`/auth/callback?${query}`, `/auth/callback?${query}&state=${'x'.repeat(43)}`])
        await expectRefusal(await call(oidc.relay.port, path), 'no_such_sign_in');
      expect((await browser.login({ query: `?${query}` })).status).toBe(302);
    }
    expect(askedForTokens()).toBe(0);
  });

  test('whose user may have been signed out meanwhile leaves no session', async () => {
    await oidc.relay.parts.sessions.removeUser('ada');
    const back = await goodCallback();
    const away = new Problem('session_store_unavailable', 'Not now.');
    jest.spyOn(oidc.relay.parts.sessions, 'removedSince').mockRejectedValue(away);
    const answer = await browser.comeBack(back);
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(String(answer.headers['set-cookie'])).not.toContain('bot_relay_session');
    expect(await oidc.relay.parts.sessions.removeUser('ada')).toBe(0);
  });
});

describe('a user who cancels at the provider', () => {
  test('gets that answer, as JSON and as a page, and can sign in after that', async () => {
    const back = await cancelAtProvider((await browser.begin(to('/chat'))).href);
    expect(back.searchParams.get('error')).toBe('access_denied');
    const page = await browser.comeBack(back, NAVIGATION);
    expect(page).toMatchObject({ status: 400, headers: { 'content-type': 'text/html; charset=utf-8' } });
    expect(page.body).toContain('The sign-in was cancelled, or');
    expect(page.body).toContain('href="/auth/login?returnTo=%2Fchat"');
    const again = await cancelAtProvider((await browser.begin()).href);
    const problem = await expectRefusal(await browser.comeBack(again), 'access_denied');
    expect(problem.detail).toMatch(/^The sign-in was cancelled, or/);
    expectNobody(await browser.session());
    expect(browser.flows()).toEqual([]);
    expect((await browser.signIn()).status).toBe(302);
    expect(await signedIn()).toBe(true);
  });
});

describe('an error of the provider', () => {
  test.each([
    ['server_error', 503, 'identity_provider_unavailable'],
    ['temporarily_unavailable', 503, 'identity_provider_unavailable'],
    ['unauthorized_client', 503, 'identity_provider_unavailable'],
    ['invalid_scope', 503, 'identity_provider_unavailable'],
    ['login_required', 400, 'sign_in_failed'],
  ] as const)('%s is %d %s, and the log tells it', async (error, status, code) => {
    await expectRefusal(await browser.comeBack(await answered({ error })), error, status, code);
    expectNobody(await browser.session());
  });

  test('with unusual characters is logged as the word other', async () => {
    for (const error of ['<script>alert(1)</script>', 'x'.repeat(3000), 'A\r\nB'])
      await expectRefusal(await browser.comeBack(await answered({ error })), 'other');
  });

  test('never shows the text of the provider', async () => {
    const words = '<img src=x onerror=alert(1)>canary-words';
    const text = { error_description: words, error_uri: `https://evil.example/${words}` };
    for (const error of ['access_denied', 'server_error', 'other']) {
      for (const headers of [{}, NAVIGATION]) {
        const { body, headers: answer } = await browser.comeBack(await answered({ error, ...text }), headers);
        expect(body + JSON.stringify(answer)).not.toMatch(/canary-words|onerror|evil\.example/);
      }
    }
    expect(JSON.stringify(oidc.relay.logs)).not.toContain('canary-words');
  });
});
