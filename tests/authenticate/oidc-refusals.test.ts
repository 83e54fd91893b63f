import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type Answer, call, expectProblem } from '../harness/clients/call.ts';
import { type Browser, NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';
import { cancelAtProvider } from '../harness/service/identity-provider.ts';

let oidc: Oidc;
let browser: Browser;
beforeEach(async () => {
  oidc = await startOidc();
  browser = oidc.browser();
});
afterEach(() => oidc.close());

const expectNoSession = async () => expect((await browser.session()).status).toBe(401);
/** The codes and causes of the callback's answers in the log, in their order. */
const causes = () =>
  oidc.relay.logs
    .filter(({ route }) => route === '/auth/callback')
    .map(({ outcome, cause }) => [outcome, cause]);
/** The levels of their log lines: `info` for refusals that users, or attackers at the callback, can cause. */
const levels = () =>
  new Set(oidc.relay.logs.filter(({ route }) => route === '/auth/callback').map(({ level }) => level));
const askedForTokens = () => oidc.provider.asked.filter((path) => path === '/token').length;
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
function expectRefusal(answer: Answer): void {
  expectProblem(answer, 400, 'sign_in_failed');
  expect(answer.headers).not.toHaveProperty('location');
  expect(String(answer.headers['set-cookie'])).not.toContain('bot_relay_session');
}

describe('a callback', () => {
  test('that is repeated signs nobody in, and does not end the session', async () => {
    const back = await browser.atProvider(await browser.begin());
    expect((await browser.comeBack(back)).status).toBe(302);
    expectRefusal(await browser.comeBack(back));
    expect((await browser.session()).status).toBe(200);
    await oidc.relay.logLine(({ cause }) => cause === 'no_such_sign_in');
    expect(levels()).toEqual(new Set(['info']));
    expect(askedForTokens()).toBe(1);
  });

  test('that is repeated with a copy of its cookie is refused by the provider', async () => {
    const back = await browser.atProvider(await browser.begin());
    const thief = oidc.browser();
    for (const name of browser.flows()) thief.jar.set(name, browser.jar.value(name) as string);
    expect((await browser.comeBack(back)).status).toBe(302);
    expectRefusal(await thief.comeBack(back));
    expect((await thief.session()).status).toBe(401);
    await oidc.relay.logLine(({ cause }) => cause === 'invalid_grant');
  });

  test('that comes twice at the same time signs in once', async () => {
    const back = await browser.atProvider(await browser.begin());
    const copy = oidc.browser();
    for (const name of browser.flows()) copy.jar.set(name, browser.jar.value(name) as string);
    const answers = await Promise.all([browser.comeBack(back), copy.comeBack(back)]);
    expect(answers.filter(({ status }) => status === 302).length).toBeLessThanOrEqual(1);
  });

  test('without its cookie, as in another browser, does not ask the provider at all', async () => {
    const back = await browser.atProvider(await browser.begin());
    expectRefusal(await oidc.browser().comeBack(back));
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
    ['an unknown code', { code: 'canary-code-that-nobody-gave' }, 'invalid_grant'],
    ['a huge code', { code: 'a'.repeat(8_000) }, 'invalid_grant'],
    ['a response', { response: 'e30.e30.' }, 'OAUTH_INVALID_RESPONSE'],
    ['an ID token', { id_token: 'e30.e30.' }, 'OAUTH_UNSUPPORTED_OPERATION'],
  ])('with %s signs nobody in', async (_, parameters, cause) => {
    const back = await browser.atProvider(await browser.begin());
    expectRefusal(await browser.comeBack(changed(back, parameters)));
    await expectNoSession();
    expect(causes()).toEqual([['sign_in_failed', cause]]);
    expect(levels()).toEqual(new Set(['info']));
  });

  test('with no code signs nobody in', async () => {
    const back = await browser.atProvider(await browser.begin());
    const answer = await browser.comeBack(changed(back, { code: undefined }));
    expectRefusal(answer);
    await expectNoSession();
    expect(askedForTokens()).toBe(0);
  });

  test.each(['state', 'code', 'iss', 'error'])('with two of %s signs nobody in', async (name) => {
    const back = await browser.atProvider(await browser.begin());
    const own = back.searchParams.get(name) ?? 'access_denied';
    for (const one of [own, 'x'.repeat(43)]) back.searchParams.append(name, one);
    expectRefusal(await browser.comeBack(back));
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
    for (const path of [`/auth/callback?${query}`, `/auth/callback?${query}&state=${'x'.repeat(43)}`]) {
      const answer = await call(oidc.relay.port, path);
      expectRefusal(answer);
    }
    expect(oidc.provider.asked).toEqual([]);
    const { status } = await browser.login({ query: `?${query}` });
    expect(status).toBe(302);
  });
});

describe('a user who', () => {
  test('cancels at the provider gets that answer, as JSON and as a page', async () => {
    const back = await cancelAtProvider((await browser.begin({ query: '?returnTo=/chat' })).href);
    expect(back.searchParams.get('error')).toBe('access_denied');
    const page = await browser.comeBack(back, NAVIGATION);
    expect(page).toMatchObject({ status: 400, headers: { 'content-type': 'text/html; charset=utf-8' } });
    expect(page.body).toContain('The sign-in was cancelled, or');
    expect(page.body).toContain('href="/auth/login?returnTo=%2Fchat"');
    const again = await cancelAtProvider((await browser.begin()).href);
    const problem = expectProblem(await browser.comeBack(again), 400, 'sign_in_failed');
    expect(problem.detail).toMatch(/^The sign-in was cancelled, or/);
    await expectNoSession();
    expect(causes()).toEqual([
      ['sign_in_failed', 'access_denied'],
      ['sign_in_failed', 'access_denied'],
    ]);
    expect(levels()).toEqual(new Set(['info']));
  });

  test('has cancelled can sign in after that', async () => {
    await browser.comeBack(await cancelAtProvider((await browser.begin()).href));
    expect((await browser.signIn()).status).toBe(302);
    expect((await browser.session()).status).toBe(200);
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
    const answer = await browser.comeBack(await answered({ error }));
    expectProblem(answer, status, code);
    expect(answer.headers['retry-after']).toBe(status === 503 ? '5' : undefined);
    await expectNoSession();
    expect(causes()).toEqual([[code, error]]);
  });

  test('with unusual characters is logged as the word other', async () => {
    for (const error of ['<script>alert(1)</script>', 'a b', 'x'.repeat(3000), 'A\r\nB', 'canary/sëcret'])
      expectProblem(await browser.comeBack(await answered({ error })), 400, 'sign_in_failed');
    expect(causes()).toEqual(Array.from({ length: 5 }, () => ['sign_in_failed', 'other']));
  });

  test('never shows the text of the provider', async () => {
    const words = '<img src=x onerror=alert(1)>canary-words';
    for (const error of ['access_denied', 'server_error', 'other']) {
      for (const headers of [{}, NAVIGATION]) {
        const url = await answered({
          error,
          error_description: words,
          error_uri: `https://evil.example/${words}`,
        });
        const { body, headers: answer } = await browser.comeBack(url, headers);
        expect(body + JSON.stringify(answer)).not.toMatch(/canary-words|onerror|evil\.example/);
      }
    }
    expect(JSON.stringify(oidc.relay.logs)).not.toContain('canary-words');
  });
});

describe('the methods of the sign-in', () => {
  test.each(['login', 'callback'])('of /auth/%s are GET and HEAD', async (name) => {
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
      for (const headers of [{}, NAVIGATION]) {
        const answer = await call(oidc.relay.port, `/auth/${name}`, { method, headers });
        expect([method, answer.status, answer.headers.allow]).toEqual([method, 405, 'GET, HEAD']);
        expect(answer.headers).not.toHaveProperty('set-cookie');
      }
    }
    expectProblem(
      await call(oidc.relay.port, `/auth/${name}`, { method: 'POST' }),
      405,
      'method_not_allowed',
    );
  });

  test.each(['/auth/login/', '/auth/login/x', '/auth/callback/x', '/AUTH/login', '/auth/loginx'])(
    'do not exist for the unknown path %s, also for a navigation',
    async (path) => {
      expectProblem(await call(oidc.relay.port, path, { headers: NAVIGATION }), 404, 'not_found');
    },
  );
});
