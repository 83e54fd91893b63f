import type { ServerResponse } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { identityProvider } from '../../src/authenticate/oidc/identity-provider.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { expectProblem } from '../harness/clients/call.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  FAKE_CLIENT,
  type FakeProvider,
  PATHS,
  signInAt,
  signInWith,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

const MINUTE = 60_000;
/** So often the provider is asked at most while it is not available, in ms. */
const EVERY_MS = 250;

let provider: FakeProvider;
let relay: TestRelay | undefined;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(async () => {
  jest.restoreAllMocks();
  await relay?.close();
  relay = undefined;
  await provider.close();
});

const start = async (environment: Record<string, string> = {}, issuer = provider.issuer) => {
  relay = await startRelay('http://127.0.0.1:9', { ...signInAt(issuer), ...environment });
  return relay;
};
const signIn = async () => (await signInWith((relay as TestRelay).port)).ended;
const causes = () =>
  (relay as TestRelay).logs
    .filter(({ msg }) => msg === 'identity provider not discovered')
    .map(({ cause }) => cause);
describe('the client', () => {
  // Both halves of Basic are form-encoded before they are joined (RFC 6749 §2.3.1).
  const SECRET = 'canary-p:w%20+&=/?#"~!*';
  const ENCODED = 'canary%2Dp%3Aw%2520%2B%26%3D%2F%3F%23%22%7E%21%2A';
  const basic = `Basic ${Buffer.from(`bot%2Drelay:${ENCODED}`).toString('base64')}`;

  test.each<[string, unknown, 'basic' | 'post']>([
    ['by Basic if the metadata names no method', undefined, 'basic'],
    ['by Basic if the provider takes both', ['client_secret_post', 'client_secret_basic'], 'basic'],
    ['by Basic if the provider takes only that', ['client_secret_basic'], 'basic'],
    ['in the body if the provider takes only that', ['client_secret_post', 'private_key_jwt'], 'post'],
  ])('authenticates %s', async (_what, methods, way) => {
    provider.metadata.token_endpoint_auth_methods_supported = methods;
    await start({ OIDC_CLIENT_SECRET: SECRET });
    expect((await signIn()).status).toBe(302);
    const { headers, form } = provider.requests.find(({ path }) => path === PATHS.token) as never as {
      headers: Record<string, string>;
      form: URLSearchParams;
    };
    expect(headers.authorization).toBe(way === 'basic' ? basic : undefined);
    expect(form.get('client_secret')).toBe(way === 'post' ? SECRET : null);
    expect(form.get('code_verifier')).toMatch(/^[\w-]{43}$/);
  });
});

describe('metadata', () => {
  test.each<[Record<string, unknown> | number, string]>([
    [{ issuer: 'http://127.0.0.1:1' }, 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED'],
    [{ issuer: undefined }, 'OAUTH_INVALID_RESPONSE'],
    [{ jwks_uri: undefined }, 'NO_JWKS_URI'],
    [{ authorization_endpoint: undefined }, 'NO_AUTHORIZATION_ENDPOINT'],
    [{ token_endpoint: undefined }, 'NO_TOKEN_ENDPOINT'],
    [{ token_endpoint: '/token' }, 'UNSAFE_TOKEN_ENDPOINT'],
    [{ authorization_endpoint: 'javascript:1' }, 'UNSAFE_AUTHORIZATION_ENDPOINT'],
    [{ token_endpoint: 'http://192.0.2.1/' }, 'UNSAFE_TOKEN_ENDPOINT'],
    [404, 'HTTP_404'],
    [500, 'HTTP_500'],
    [204, 'HTTP_204'],
  ])('that is %j is refused, and fetched again for the next sign-in', async (metadata, cause) => {
    if (typeof metadata === 'object') provider.metadata = metadata;
    else provider.answers = { [PATHS.metadata]: (_req, res) => void res.writeHead(metadata).end() };
    const { logLine } = await start();
    expectProblem(await signIn(), 503, 'identity_provider_unavailable');
    expect(causes()).toEqual([cause]);
    expect(await logLine(({ route }) => route === '/auth/login')).toMatchObject({ cause });
    expect(provider.requests.map(({ path }) => path)).toEqual([PATHS.metadata]);
    Object.assign(provider, { metadata: {}, answers: {} });
    expect((await signIn()).status).toBe(302);
  });

  test('is logged when it is fetched first, and when it is fetched again after a failure', async () => {
    await start();
    const told = () =>
      (relay as TestRelay).logs
        .filter(({ msg }) => String(msg).startsWith('identity provider'))
        .map(({ level, msg, issuer }) => [level, msg, issuer]);
    const came = ['info', 'identity provider discovered', provider.issuer];
    await signIn();
    await signIn();
    expect(told()).toEqual([came]);
    advanceClocks({ monotonic: 61 * MINUTE });
    await signIn();
    expect([provider.asked(PATHS.metadata), told()]).toEqual([2, [came]]);
    advanceClocks({ monotonic: 122 * MINUTE });
    provider.answers = { [PATHS.metadata]: (_req, res) => void res.writeHead(500).end() };
    await signIn();
    const failed = ['error', 'identity provider not discovered', provider.issuer];
    expect(told()).toEqual([came, failed]);
    advanceClocks({ monotonic: 124 * MINUTE });
    provider.answers = {};
    await signIn();
    expect(told()).toEqual([came, failed, came]);
  });

  test('is fetched once for many sign-ins at the same time', async () => {
    await start();
    const answers = await Promise.all(Array.from({ length: 40 }, signIn));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 302));
    expect([provider.asked(PATHS.metadata), provider.asked(PATHS.keys)]).toEqual([1, 1]);
  });

  test('is not needed for the start, so the provider can start later', async () => {
    const port = await freePort();
    await start({}, `http://127.0.0.1:${port}`);
    expectProblem(await signIn(), 503, 'identity_provider_unavailable');
    expect(causes()).toEqual(['ECONNREFUSED']);
    await provider.close();
    provider = await startFakeProvider(port);
    expect((await signIn()).status).toBe(302);
  });

  test('that is not available is not requested all the time', async () => {
    provider.answers = { [PATHS.metadata]: (_req, res) => void res.writeHead(500).end() };
    await start();
    // The time until the next request may begin does not pass, however long the first one takes.
    jest.spyOn(performance, 'now').mockReturnValue(performance.now());
    await signIn();
    const later = Promise.all(Array.from({ length: 5 }, signIn));
    await wait(EVERY_MS / 2);
    expect(provider.asked(PATHS.metadata)).toBe(1);
    await later;
    expect(provider.asked(PATHS.metadata)).toBe(2);
  });

  test('that is old is fetched again', async () => {
    await start();
    await signIn();
    advanceClocks({ monotonic: 59 * MINUTE });
    await signIn();
    expect(provider.asked(PATHS.metadata)).toBe(1);
    advanceClocks({ monotonic: 61 * MINUTE });
    provider.metadata.authorization_endpoint = `${provider.issuer}/elsewhere`;
    const { begun } = await signInWith((relay as TestRelay).port);
    expect(begun.headers.location).toMatch(/^[^?]*\/elsewhere\?/);
    expect(provider.asked(PATHS.metadata)).toBe(2);
  });

  test('that is old is used while the provider fails, which is asked again from time to time', async () => {
    await start();
    await signIn();
    advanceClocks({ monotonic: 61 * MINUTE });
    provider.answers = { [PATHS.metadata]: (_req, res) => void res.writeHead(500).end() };
    for (let round = 0; round < 10; round += 1) expect((await signIn()).status).toBe(302);
    expect(provider.asked(PATHS.metadata)).toBe(2);
    expect(causes()).toHaveLength(1);
    advanceClocks({ monotonic: 63 * MINUTE });
    provider.answers = {};
    expect((await signIn()).status).toBe(302);
    expect(provider.asked(PATHS.metadata)).toBe(3);
    expect(causes()).toHaveLength(1);
  });

  test('that is old is used after a moment if the provider is slow, which is asked once', async () => {
    await start();
    await signIn();
    advanceClocks({ monotonic: 61 * MINUTE });
    const held: ServerResponse[] = [];
    provider.answers = { [PATHS.metadata]: (_req, res) => void held.push(res) };
    const { ended } = await signInWith((relay as TestRelay).port);
    expect(ended.status).toBe(302);
    // The request to the provider is still open: neither side has ended it.
    expect(held.map(({ destroyed }) => destroyed)).toEqual([false]);
  });
});

describe('an issuer by https', () => {
  const ISSUER = 'https://login.example.com';
  const asked: string[] = [];
  const LINES: string[] = [];
  const FLOW = { state: 's'.repeat(43), nonce: 'n', verifier: 'v'.repeat(43), returnTo: '/' };

  function secureProvider(metadata: Record<string, unknown>, issuer = ISSUER) {
    asked.length = 0;
    LINES.length = 0;
    const json = (body: unknown) =>
      new Response(JSON.stringify(body), { headers: { 'Content-Type': 'application/json' } });
    return identityProvider({
      issuer: new URL(issuer),
      clientId: FAKE_CLIENT.id,
      clientSecret: secret(FAKE_CLIENT.secret),
      scopes: 'openid',
      requiredClaim: undefined,
      keepIdToken: false,
      callbackUrl: 'https://app.example.com/auth/callback',
      signedOutUrl: 'https://app.example.com/',
      logger: createLogger('info', { write: (line: string) => void LINES.push(line) }),
      fetch: async (url) => {
        asked.push(String(url));
        return json({
          issuer: ISSUER,
          authorization_endpoint: `${ISSUER}/authorize`,
          token_endpoint: `${ISSUER}/token`,
          jwks_uri: `${ISSUER}/keys`,
          ...metadata,
        });
      },
    });
  }

  test('is accepted if all its endpoints are https', async () => {
    const url = new URL(await secureProvider({}).signInUrl(FLOW, false));
    expect(url.origin + url.pathname).toBe(`${ISSUER}/authorize`);
  });

  test.each([
    'authorization_endpoint',
    'token_endpoint',
    'jwks_uri',
    'userinfo_endpoint',
    'end_session_endpoint',
  ])('is refused if its %s is in clear text, even on this machine', async (name) => {
    const insecure = secureProvider({ [name]: 'http://127.0.0.1:9/' });
    const refused = { code: 'identity_provider_unavailable', cause: `UNSAFE_${name.toUpperCase()}` };
    // All at once: one after the other, each would wait until the next request to the provider is allowed.
    await Promise.all([
      expect(insecure.signInUrl(FLOW, false)).rejects.toMatchObject(refused),
      expect(insecure.finishSignIn('?code=c', FLOW)).rejects.toMatchObject(refused),
      expect(insecure.verify('a.b.c', 60)).rejects.toMatchObject(refused),
      expect(insecure.signOutUrl({})).resolves.toBeUndefined(),
    ]);
    expect(new Set(asked)).toEqual(new Set([`${ISSUER}/.well-known/openid-configuration`]));
    expect(LINES.join()).not.toContain(FAKE_CLIENT.secret);
  });

  test('is refused, too, if the metadata at its address names another issuer in clear text', async () => {
    const insecure = secureProvider(
      { issuer: 'http://127.0.0.1:9', token_endpoint: 'http://127.0.0.1:9/token' },
      `${ISSUER}/.well-known/openid-configuration`,
    );
    await expect(insecure.signInUrl(FLOW, false)).rejects.toMatchObject({ cause: 'UNSAFE_TOKEN_ENDPOINT' });
  });
});
