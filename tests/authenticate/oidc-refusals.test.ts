import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Problem, type ProblemCode } from '../../src/errors.ts';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { type Browser, NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';
import { cancelAtProvider } from '../harness/service/identity-provider.ts';

let oidc: Oidc;
let browser: Browser;
let askedBefore: number;
beforeAll(async () => {
  oidc = await startOidc();
});
beforeEach(() => {
  browser = oidc.browser();
  askedBefore = oidc.provider.asked.length;
});
afterEach(() => void jest.restoreAllMocks());
afterAll(() => oidc.close());

const expectNoSession = async () => expectNobody(await browser.session());
const asked = () => oidc.provider.asked.slice(askedBefore);
const askedForTokens = () => asked().filter((path) => path === '/token').length;
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
async function answered(parameters: Record<string, string>): Promise<URL> {
  const state = (await browser.begin()).searchParams.get('state') as string;
  const url = new URL('http://app.example.com/auth/callback');
  return changed(url, { state, iss: oidc.provider.issuer, ...parameters });
}
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
  const line = await oidc.relay.logLine(
    ({ requestId, msg }) => msg === 'request' && requestId === problem.requestId,
  );
  expect(line).toMatchObject({ route: '/auth/callback', outcome: code, cause });
  if (status === 400) expect(line.level).toBe('info');
  return problem;
}
/** Another browser with a copy of the cookies of the sign-in. */
function copyOf(one: Browser): Browser {
  const copy = oidc.browser();
  for (const name of one.flows()) copy.jar.set(name, one.jar.value(name) as string);
  return copy;
}

describe('a callback', () => {
  test('that is repeated signs nobody in, and does not end the session', async () => {
    const back = await browser.atProvider(await browser.begin());
    const thief = copyOf(browser);
    expect((await browser.comeBack(back)).status).toBe(302);
    await expectRefusal(await browser.comeBack(back), 'no_such_sign_in');
    expect([isSignedIn(await browser.session()), askedForTokens()]).toEqual([true, 1]);
    // With a copy of its cookie, the provider refuses it.
    await expectRefusal(await thief.comeBack(back), 'invalid_grant');
    expectNobody(await thief.session());
  });

  test('that comes twice at the same time signs in once at most', async () => {
    const back = await browser.atProvider(await browser.begin());
    const answers = await Promise.all([browser.comeBack(back), copyOf(browser).comeBack(back)]);
    expect(answers.filter(({ status }) => status === 302).length).toBeLessThanOrEqual(1);
  });

  test('without its cookie, as in another browser, does not ask the provider at all', async () => {
    const back = await browser.atProvider(await browser.begin());
    await expectRefusal(await oidc.browser().comeBack(back), 'no_such_sign_in');
    expect(askedForTokens()).toBe(0);
    // The browser in which it began can still finish it.
    expect((await browser.comeBack(back)).status).toBe(302);
  });

  test.each([
    ['no state', { state: undefined }, 'no_such_sign_in'],
    ['an empty state', { state: '' }, 'no_such_sign_in'],
    ['another state', { state: 'x'.repeat(43) }, 'no_such_sign_in'],
    ['no issuer', { iss: undefined }, 'OAUTH_INVALID_RESPONSE'],
    ['the issuer of another provider', { iss: 'https://evil.example' }, 'OAUTH_INVALID_RESPONSE'],
    ['no code', { code: undefined }, 'OAUTH_INVALID_RESPONSE'],
    ['an unknown code', { code: 'canary-code-that-nobody-gave' }, 'invalid_grant'],
    ['a huge code', { code: 'a'.repeat(8_000) }, 'invalid_grant'],
    ['a response', { response: 'e30.e30.' }, 'OAUTH_INVALID_RESPONSE'],
    ['an ID token', { id_token: 'e30.e30.' }, 'OAUTH_UNSUPPORTED_OPERATION'],
  ])('with %s signs nobody in', async (_, parameters, cause) => {
    const back = await browser.atProvider(await browser.begin());
    await expectRefusal(await browser.comeBack(changed(back, parameters)), cause);
    await expectNoSession();
    expect(askedForTokens()).toBe(cause === 'invalid_grant' ? 1 : 0);
  });

  test.each(['state', 'code', 'iss', 'error'])('with two of %s signs nobody in', async (name) => {
    const back = await browser.atProvider(await browser.begin());
    const own = back.searchParams.get(name) ?? 'access_denied';
    for (const one of [own, 'x'.repeat(43)]) back.searchParams.append(name, one);
    await expectRefusal(await browser.comeBack(back), expect.any(String));
    await expectNoSession();
    expect(askedForTokens()).toBe(0);
  });

  test.each([
    ['is huge', `code=${'a'.repeat(8_000)}`],
    ['has a thousand parameters', Array.from({ length: 1000 }, (_, n) => `p${n}=1`).join('&')],
    ['has names of prototypes', '__proto__=1&constructor=2&toString=3'],
    ['is broken', '%ff%fe&=&&=%&state&code=%00%0d%0aSet-Cookie:x=1'],
    ['is a list', 'state[]=a&code[]=b'],
    ['repeats its question mark', '??state=?&?code=?'],
  ])('whose query %s is refused like any other', async (_, query) => {
    for (const path of [`/auth/callback?${query}`, `/auth/callback?${query}&state=${'x'.repeat(43)}`])
      await expectRefusal(await call(oidc.relay.port, path), 'no_such_sign_in');
    expect(asked()).toEqual([]);
    expect((await browser.login({ query: `?${query}` })).status).toBe(302);
  });

  test('whose user was signed out meanwhile, or may have been, leaves no session', async () => {
    const away = new Problem('session_store_unavailable', 'Not now.');
    for (const [removedSince, status, code] of [
      [async () => true, 400, 'sign_in_failed'],
      [() => Promise.reject(away), 503, 'session_store_unavailable'],
    ] as const) {
      await oidc.relay.sessions.removeUser('ada');
      const back = await browser.atProvider(await browser.begin());
      jest.spyOn(oidc.relay.sessions, 'removedSince').mockImplementation(removedSince);
      const answer = await browser.comeBack(back);
      expectProblem(answer, status, code);
      expect(String(answer.headers['set-cookie'])).not.toContain('bot_relay_session');
      expect(await oidc.relay.sessions.removeUser('ada')).toBe(0);
      jest.restoreAllMocks();
    }
  });
});

describe('a user who cancels at the provider', () => {
  test('gets that answer, as JSON and as a page, and can sign in after that', async () => {
    const back = await cancelAtProvider((await browser.begin({ query: '?returnTo=/chat' })).href);
    expect(back.searchParams.get('error')).toBe('access_denied');
    const page = await browser.comeBack(back, NAVIGATION);
    expect(page).toMatchObject({ status: 400, headers: { 'content-type': 'text/html; charset=utf-8' } });
    expect(page.body).toContain('The sign-in was cancelled, or');
    expect(page.body).toContain('href="/auth/login?returnTo=%2Fchat"');
    const again = await cancelAtProvider((await browser.begin()).href);
    const problem = await expectRefusal(await browser.comeBack(again), 'access_denied');
    expect(problem.detail).toMatch(/^The sign-in was cancelled, or/);
    await expectNoSession();
    expect((await browser.signIn()).status).toBe(302);
    expect(isSignedIn(await browser.session())).toBe(true);
  });
});

describe('an error of the provider', () => {
  test.each([
    ['server_error', 503, 'identity_provider_unavailable'],
    ['temporarily_unavailable', 503, 'identity_provider_unavailable'],
    ['unauthorized_client', 503, 'identity_provider_unavailable'],
    ['invalid_scope', 503, 'identity_provider_unavailable'],
    ['login_required', 400, 'sign_in_failed'],
    ['consent_required', 400, 'sign_in_failed'],
  ] as const)('%s is %d %s, and the log tells it', async (error, status, code) => {
    await expectRefusal(await browser.comeBack(await answered({ error })), error, status, code);
    await expectNoSession();
  });

  test('with unusual characters is logged as the word other', async () => {
    for (const error of ['<script>alert(1)</script>', 'a b', 'x'.repeat(3000), 'A\r\nB', 'canary/sëcret'])
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

describe('the sign-in', () => {
  test.each(['login', 'callback'])(
    'has only GET and HEAD at /auth/%s, also for a navigation',
    async (name) => {
      for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
        for (const headers of [{}, NAVIGATION]) {
          const answer = await call(oidc.relay.port, `/auth/${name}`, { method, headers });
          expect([method, answer.status, answer.headers.allow]).toEqual([method, 405, 'GET, HEAD']);
          expect(answer.headers).not.toHaveProperty('set-cookie');
        }
      }
      const refused = await call(oidc.relay.port, `/auth/${name}`, { method: 'POST' });
      expectProblem(refused, 405, 'method_not_allowed');
    },
  );

  test('has no other paths, also for a navigation', async () => {
    for (const path of [
      '/auth/login/',
      '/auth/login/x',
      '/auth/callback/x',
      '/AUTH/login',
      '/auth/loginx',
      '/',
    ])
      expectProblem(await call(oidc.relay.port, path, { headers: NAVIGATION }), 404, 'not_found');
    const session = await call(oidc.relay.port, '/auth/session', { headers: NAVIGATION });
    expectNobody(session);
  });
});
