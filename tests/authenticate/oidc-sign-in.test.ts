import { createHash } from 'node:crypto';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { Session } from '../../src/authenticate/sessions/session.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { NAVIGATION, type Oidc, type OidcOptions, startOidc } from '../harness/relay/oidc-relay.ts';
import { stored } from '../harness/relay/sessions.ts';
import { CLIENT } from '../harness/service/identity-provider.ts';

let oidc: Oidc;
afterEach(() => oidc.close());
const start = async (options?: OidcOptions) => {
  oidc = await startOidc(options);
  return oidc.browser();
};
const sessionHeld = (id: string | undefined) => stored(oidc.relay.sessions, id as string);

describe('a sign-in at the identity provider', () => {
  test('redirects to the provider and back to where it began, and begins a session', async () => {
    const browser = await start();
    const ended = await browser.signIn('ada', { query: '?returnTo=/chat?tab=2', headers: NAVIGATION });
    expect(ended).toMatchObject({ status: 302, body: '', headers: { location: '/chat?tab=2' } });
    expect(ended.headers).toMatchObject({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
    const { status, body } = await browser.session();
    expect({ status, ...JSON.parse(body) }).toEqual({
      status: 200,
      user: { id: 'ada', name: 'Ada' },
      idleExpiresAt: expect.stringMatching(/Z$/),
      absoluteExpiresAt: expect.stringMatching(/Z$/),
    });
    expect(browser.flows()).toEqual([]);
  });

  test('is sufficient to send a message', async () => {
    const browser = await start();
    await browser.signIn();
    // Nothing listens there, so this message has passed every stage.
    expect((await oidc.relay.send(browser.jar.header())).status).toBe(502);
  });

  test('stores a session with the user, the provider’s session, its beginning and the limits, and nothing else', async () => {
    const browser = await start({ limits: { idleMs: 60_000, absoluteMs: 120_000 } });
    const before = Date.now();
    await browser.signIn();
    const held = await sessionHeld(browser.sessionId());
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
    const browser = await start({ environment: { OIDC_KEEP_ID_TOKEN: 'true' } });
    await browser.signIn();
    const { idToken } = (await sessionHeld(browser.sessionId())) ?? {};
    expect(oidc.provider.secrets).toContain(idToken);
    expect(idToken?.split('.')).toHaveLength(3);
    expect((await browser.session()).body).not.toContain(idToken);
  });

  test('is logged with its route and its user', async () => {
    const browser = await start();
    await browser.signIn('ada', { query: '?returnTo=/canary-path' });
    const line = await oidc.relay.logLine(({ route }) => route === '/auth/callback');
    expect(line).toMatchObject({ status: 302, outcome: 'ok', userId: 'ada' });
    const begun = await oidc.relay.logLine(({ route }) => route === '/auth/login');
    expect(begun).toMatchObject({ status: 302, outcome: 'ok' });
    expect(begun).not.toHaveProperty('userId');
    expect(JSON.stringify(oidc.relay.logs)).not.toContain('canary-path');
    // At the end of each test the log is searched for the code, the state, the verifier and the tokens.
    expect([...oidc.provider.secrets].length).toBeGreaterThanOrEqual(7);
    expect(await oidc.relay.metricsText()).toContain('route="/auth/callback"');
  });

  test('handles HEAD like GET', async () => {
    const browser = await start();
    const { status, headers } = await call(oidc.relay.port, '/auth/login', { method: 'HEAD' });
    expect([status, new URL(headers.location as string).origin]).toEqual([302, oidc.provider.issuer]);
    expect(browser.flows()).toEqual([]);
  });
});

describe('the authorization request', () => {
  test('has a new state, nonce and challenge each time, and no secret', async () => {
    const browser = await start();
    const url = await browser.begin();
    expect(url.origin + url.pathname).toBe(`${oidc.provider.issuer}/auth`);
    expect(Object.fromEntries(url.searchParams)).toEqual({
      response_type: 'code',
      client_id: CLIENT.id,
      redirect_uri: 'http://app.example.com/auth/callback',
      scope: 'openid profile',
      state: expect.stringMatching(/^[\w-]{43}$/),
      nonce: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
    });
    const other = await browser.begin();
    for (const name of ['state', 'nonce', 'code_challenge'])
      expect(other.searchParams.get(name)).not.toBe(url.searchParams.get(name));
  });

  test('is confirmed with the verifier of its challenge (RFC 7636)', async () => {
    const browser = await start();
    const url = await browser.begin();
    const verifiers: unknown[] = [];
    oidc.provider.provider.on('grant.success', (ctx) => verifiers.push(ctx.oidc.params?.code_verifier));
    await browser.comeBack(await browser.atProvider(url));
    const [verifier] = verifiers as string[];
    expect(createHash('sha256').update(String(verifier)).digest('base64url')).toBe(
      url.searchParams.get('code_challenge'),
    );
  });

  test('has the scopes and the callback URL of the configuration', async () => {
    const environment = {
      PUBLIC_URL: 'https://chat.example.com',
      BASE_PATH: '/chat-api',
      OIDC_SCOPES: 'openid groups',
    };
    const browser = await start({ environment });
    const url = await browser.begin({ query: '?returnTo=/x' });
    expect(url.searchParams.get('redirect_uri')).toBe('https://chat.example.com/chat-api/auth/callback');
    expect(url.searchParams.get('scope')).toBe('openid groups');
    const back = await browser.atProvider(url);
    expect(back.pathname).toBe('/chat-api/auth/callback');
    expect(await browser.comeBack(back)).toMatchObject({ status: 302, headers: { location: '/x' } });
    expect((await browser.session()).status).toBe(200);
  });

  test('asks for the password again with prompt=login, and passes no other parameter on', async () => {
    const browser = await start();
    const url = await browser.begin({ query: '?prompt=login&scope=evil&redirect_uri=https://evil.example' });
    expect(url.searchParams.get('prompt')).toBe('login');
    expect(url.searchParams.getAll('scope')).toEqual(['openid profile']);
    expect(url.searchParams.getAll('redirect_uri')).toEqual(['http://app.example.com/auth/callback']);
    expect((await browser.begin({ query: '?prompt=none' })).searchParams.has('prompt')).toBe(false);
  });

  test('returns only to paths of this origin', async () => {
    const browser = await start();
    for (const returnTo of ['//evil.example', 'https://evil.example', '/%5Cevil.example', '/auth/login']) {
      const ended = await browser.signIn('ada', { query: `?returnTo=${encodeURIComponent(returnTo)}` });
      expect([returnTo, ended.headers.location]).toEqual([returnTo, '/']);
    }
  });
});

describe('a request that needs a session', () => {
  test.each(['text/event-stream', '*/*', 'text/html', undefined])(
    'is refused as JSON to a client that accepts %s',
    async (accept) => {
      await start();
      const path = '/generic/ns/acme/bot-provider/helper/message/sse';
      const headers = { 'Content-Type': 'application/json', ...(accept && { Accept: accept }) };
      for (const more of [{}, NAVIGATION]) {
        const answer = await call(oidc.relay.port, path, {
          method: 'POST',
          headers: { ...more, ...headers },
          body: '{}',
        });
        expectProblem(answer, 401, 'unauthenticated');
        expect(answer.headers).not.toHaveProperty('www-authenticate');
        expect(answer.headers).not.toHaveProperty('location');
      }
    },
  );
});
