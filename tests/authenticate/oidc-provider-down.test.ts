import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type Answer, expectProblem } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type Browser, NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';

const DISCOVERY = '/.well-known/openid-configuration';

let oidc: Oidc;
let browser: Browser;
beforeEach(async () => {
  oidc = await startOidc();
  browser = oidc.browser();
});
afterEach(() => oidc.close());

function expectUnavailable(answer: Answer, { provider } = oidc): void {
  const { detail } = expectProblem(answer, 503, 'identity_provider_unavailable');
  expect(detail).toBe('The identity provider does not answer as it should. Try again.');
  expect(answer.headers['retry-after']).toBe('5');
  expect(JSON.stringify(answer)).not.toContain(new URL(provider.issuer).host);
}
/** The cause of the last request in the log. */
const cause = () => oidc.relay.logs.filter(({ msg }) => msg === 'request').at(-1)?.cause;
/** The relay's answer when `listener` answers at `path` in place of the provider. */
async function withAnswer(path: string, listener: RequestListener): Promise<Answer> {
  oidc.provider.answers.set(path, listener);
  try {
    if (path === DISCOVERY) return await oidc.browser().login();
    return await browser.comeBack(await browser.atProvider(await browser.begin()));
  } finally {
    oidc.provider.answers.delete(path);
  }
}

/** Resolves when `count` sign-ins have begun at the relay. */
function arrivals(count: number): Promise<void> {
  let left = count;
  return new Promise((resolve) => {
    const hear = (message: unknown) => {
      const { request } = message as { request: IncomingMessage };
      if (request.socket.localPort !== oidc.relay.port || request.url !== '/auth/login') return;
      left -= 1;
      if (left > 0) return;
      unsubscribe('http.server.request.start', hear);
      resolve();
    };
    subscribe('http.server.request.start', hear);
  });
}

const text =
  (status: number, body: string, headers: Record<string, string> = {}): RequestListener =>
  (_req, res) =>
    void res.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(body);
const never: RequestListener = () => {};
const slowly: RequestListener = (_req, res) =>
  void res.writeHead(200, { 'Content-Type': 'application/json' }).write('{');
const HANGING: [how: string, path: string, hang: RequestListener, cause: string][] = [
  ['whose metadata never comes', DISCOVERY, never, 'OAUTH_TIMEOUT'],
  ['whose tokens never come', '/token', never, 'OAUTH_TIMEOUT'],
  ['whose tokens come very slowly', '/token', slowly, 'OAUTH_PARSE_ERROR'],
  ['whose keys never come', '/jwks', never, 'ERR_JWKS_TIMEOUT'],
  ['whose user data never come', '/me', never, 'OAUTH_TIMEOUT'],
];
const HTML = { 'Content-Type': 'text/html' };

describe('while the provider is out of reach', () => {
  test('the beginning of a sign-in is answered with 503, sets no cookie, and works when the provider is back', async () => {
    oidc.provider.isDown = true;
    const answer = await browser.login();
    expectUnavailable(answer);
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(cause()).toMatch(/^(ECONNRESET|UND_ERR_SOCKET)$/);
    oidc.provider.isDown = false;
    expect((await browser.signIn()).status).toBe(302);
    expect((await browser.session()).status).toBe(200);
  });

  test('the end of a sign-in is answered with 503, signs nobody in, and a new sign-in can begin', async () => {
    const back = await browser.atProvider(await browser.begin());
    oidc.provider.isDown = true;
    expectUnavailable(await browser.comeBack(back));
    expect((await browser.session()).status).toBe(401);
    oidc.provider.isDown = false;
    expect((await browser.signIn()).status).toBe(302);
  });

  test('a sign-in still begins if the metadata was fetched before', async () => {
    await browser.begin();
    oidc.provider.isDown = true;
    expect((await browser.login()).status).toBe(302);
  });

  test('users who are signed in stay signed in', async () => {
    await browser.signIn();
    oidc.provider.isDown = true;
    const back = new URL('http://app.example.com/auth/callback?code=x');
    back.searchParams.set('state', (await browser.begin()).searchParams.get('state') as string);
    back.searchParams.set('iss', oidc.provider.issuer);
    expectUnavailable(await browser.comeBack(back));
    expect((await browser.session()).status).toBe(200);
  });

  test('the log has the cause', async () => {
    await oidc.provider.close();
    expectUnavailable(await browser.login());
    expect(cause()).toBe('ECONNREFUSED');
    const line = await oidc.relay.logLine(({ msg }) => msg === 'identity provider not discovered');
    expect(line).toMatchObject({ level: 'error', cause: 'ECONNREFUSED' });
  });

  test('many sign-ins at the same time cause one request to it', async () => {
    const held: ServerResponse[] = [];
    oidc.provider.answers.set(DISCOVERY, (_req, res) => void held.push(res));
    const arrived = arrivals(20);
    const all = Array.from({ length: 20 }, () => oidc.browser().login());
    await arrived;
    // All sign-ins that arrived before this answer have asked by then.
    await oidc.browser().get('/healthz');
    while (held.length === 0) await new Promise((resolve) => setImmediate(resolve));
    oidc.provider.answers.set(DISCOVERY, (_req, res) => void res.writeHead(500).end());
    for (const res of held) res.writeHead(500).end();
    const answers = await Promise.all(all);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]));
    expect(oidc.provider.asked.length).toBeLessThan(5);
  });
});

describe('a provider with an unusable answer', () => {
  const cases: [string, RequestListener][] = [
    ['a page', text(200, '<html>canary-page</html>', HTML)],
    ['a page of an error', text(500, '<html>canary-page</html>', HTML)],
    ['an error', text(503, '{"canary":"page"}')],
    ['a redirect', text(302, '', { Location: '/elsewhere' })],
    ['nothing', text(200, '')],
    ['broken JSON', text(200, '{"issuer":"canary-page')],
    ['a list', text(200, '["canary-page"]')],
    ['null', text(200, 'null')],
  ];

  test.each(cases)('such as %s counts as out of reach at every step', async (_, listener) => {
    for (const path of [DISCOVERY, '/token', '/jwks', '/me']) {
      // Metadata and keys that did not come are not asked for again at once.
      if (path === '/token' || path === '/me') {
        await oidc.close();
        oidc = await startOidc();
        browser = oidc.browser();
      }
      const answer = await withAnswer(path, listener);
      expect([path, answer.status]).toEqual([path, 503]);
      expectUnavailable(answer);
      expect(oidc.provider.asked).not.toContain('/elsewhere');
      expect((await browser.session()).status).toBe(401);
      expect(JSON.stringify(oidc.relay.logs)).not.toContain('canary-page');
    }
    expect((await browser.signIn()).status).toBe(302);
  });

  test('such as the metadata of another provider counts as out of reach', async () => {
    const body = JSON.stringify({
      issuer: 'https://evil.example',
      authorization_endpoint: 'https://evil.example/',
    });
    expectUnavailable(await withAnswer(DISCOVERY, text(200, body)));
  });

  test('that looks like a secret is not logged', async () => {
    const words = { code: 'canary-leaked code', name: 'canary leaked', message: 'canary-leaked' };
    await withAnswer('/token', text(200, JSON.stringify(words)));
    await withAnswer('/token', text(400, JSON.stringify({ error: 'canary-leaked code', ...words })));
    expect(JSON.stringify(oidc.relay.logs)).not.toMatch(/canary.leaked/);
  });
});

describe('a relay with the wrong client secret', () => {
  test('answers 503 and logs the cause', async () => {
    await oidc.close();
    oidc = await startOidc({ environment: { OIDC_CLIENT_SECRET: 'canary-wrong-client-secret' } });
    browser = oidc.browser();
    expectUnavailable(await browser.signIn());
    expect((await browser.session()).status).toBe(401);
    const line = await oidc.relay.logLine(({ route }) => route === '/auth/callback');
    expect(line).toMatchObject({ level: 'warn', status: 503, cause: 'invalid_client' });
    expect(JSON.stringify(oidc.relay.logs)).not.toContain('canary-wrong-client-secret');
  });

  test('answers a navigation with a page that says the same', async () => {
    await oidc.close();
    oidc = await startOidc({ environment: { OIDC_CLIENT_SECRET: 'canary-wrong-client-secret' } });
    browser = oidc.browser();
    const back = await browser.atProvider(await browser.begin());
    expect(await browser.comeBack(back, NAVIGATION)).toMatchObject({
      status: 503,
      headers: { 'content-type': 'text/html; charset=utf-8', 'retry-after': '5' },
    });
    const line = await oidc.relay.logLine(({ route }) => route === '/auth/callback');
    expect(line).toMatchObject({ outcome: 'identity_provider_unavailable', cause: 'invalid_client' });
  });
});

// These begin when the file begins, and wait while the other tests run.
testSideBySide(
  HANGING.map(([how, path, hang, expected]) => [
    `a provider ${how} is waited for only a few seconds`,
    async () => {
      const one = await startOidc();
      const user = one.browser();
      try {
        const back = path === DISCOVERY ? undefined : await user.atProvider(await user.begin());
        one.provider.answers.set(path, hang);
        const from = performance.now();
        const answer = await (back ? user.comeBack(back) : user.login());
        expect(performance.now() - from).toBeGreaterThan(4000);
        expect(performance.now() - from).toBeLessThan(15_000);
        expectUnavailable(answer, one);
        const { cause } = await one.relay.logLine(({ status }) => status === 503);
        expect(cause).toBe(expected);
        expect((await user.session()).status).toBe(401);
      } finally {
        await one.close();
      }
    },
  ]),
);
