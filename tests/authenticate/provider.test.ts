import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { type JWTVerifyGetKey, jwtVerify } from 'jose';
import { type Claims, refusalOf, userOf } from '../../src/authenticate/oidc/claims.ts';
import { identityProvider } from '../../src/authenticate/oidc/identity-provider.ts';
import { throttled } from '../../src/authenticate/oidc/provider-fetch.ts';
import { providerKeys } from '../../src/authenticate/oidc/provider-keys.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { NAVIGATION, startOidc } from '../harness/relay/oidc-relay.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  FAKE_CLIENT,
  type FakeProvider,
  type Handler,
  PATHS,
  signInAt,
  signInWith,
  signingKey,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

const MINUTE = 60_000;

let provider: FakeProvider;
let relays: TestRelay[] = [];
/** The relay that was started last. */
let relay: TestRelay;
/** By how much the clock is ahead, in ms. */
let ahead = 0;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(async () => {
  jest.restoreAllMocks();
  ahead = 0;
  for (const one of relays) await one.close();
  relays = [];
  await provider.close();
});

async function start(environment: Record<string, string> = {}): Promise<TestRelay> {
  relay = await startRelay('http://127.0.0.1:9', { ...signInAt(provider.issuer), ...environment });
  relays.push(relay);
  return relay;
}
const signIn = async () => (await signInWith(relay.port)).ended;
/** Lets some time pass: by default so much that the provider may be asked again. */
function pass(ms = 1_001): void {
  ahead += ms;
  advanceClocks({ monotonic: ahead });
}
const told = () =>
  relay.logs
    .filter(({ msg }) => String(msg).startsWith('identity provider'))
    .map(({ level, msg, cause }) => [level, msg, cause]);
const lineOf = ({ headers }: Answer, { logLine } = relay) =>
  logLine(({ msg, requestId }) => msg === 'request' && requestId === headers['x-request-id']);

/** Expects a refusal that tells nothing of the provider; returns the cause in the log. */
async function expectUnavailable(answer: Answer, at = relay): Promise<unknown> {
  const { detail } = expectProblem(answer, 503, 'identity_provider_unavailable');
  expect(detail).toBe('The identity provider does not answer as it should. Try again.');
  expect(answer.headers['retry-after']).toBe('5');
  expect(String(answer.headers['set-cookie'])).not.toContain('bot_relay_session=s');
  expect(answer.body).not.toMatch(/127\.0\.0\.1|canary/);
  return (await lineOf(answer, at)).cause;
}

describe('the client', () => {
  // Both halves of Basic are form-encoded before they are joined (RFC 6749 §2.3.1).
  const SECRET = 'canary-p:w%20+&=/?#"~!*';
  const ENCODED = 'canary%2Dp%3Aw%2520%2B%26%3D%2F%3F%23%22%7E%21%2A';
  const basic = `Basic ${Buffer.from(`bot%2Drelay:${ENCODED}`).toString('base64')}`;

  test.each<[string, unknown, 'basic' | 'post']>([
    ['by Basic if the metadata names no method', undefined, 'basic'],
    ['by Basic if the provider takes both', ['client_secret_post', 'client_secret_basic'], 'basic'],
    ['in the body if the provider takes only that', ['client_secret_post', 'private_key_jwt'], 'post'],
  ])('authenticates %s', async (_what, methods, way) => {
    provider.metadata.token_endpoint_auth_methods_supported = methods;
    await start({ OIDC_CLIENT_SECRET: SECRET });
    expect((await signIn()).status).toBe(302);
    const asked = provider.requests.find(({ path }) => path === PATHS.token);
    expect(asked?.headers.authorization).toBe(way === 'basic' ? basic : undefined);
    expect(asked?.form.get('client_secret')).toBe(way === 'post' ? SECRET : null);
    expect(asked?.form.get('code_verifier')).toMatch(/^[\w-]{43}$/);
  });

  test('with the wrong secret is answered with 503, also with a page, and the log has the cause', async () => {
    const wrong = 'canary-wrong-client-secret';
    const oidc = await startOidc({ environment: { OIDC_CLIENT_SECRET: wrong } });
    const browser = oidc.browser();
    expect(await expectUnavailable(await browser.signIn(), oidc.relay)).toBe('invalid_client');
    expect(isSignedIn(await browser.session())).toBe(false);
    const page = await browser.comeBack(await browser.atProvider(await browser.begin()), NAVIGATION);
    expect(page).toMatchObject({
      status: 503,
      headers: { 'content-type': 'text/html; charset=utf-8', 'retry-after': '5' },
    });
    expect(await lineOf(page, oidc.relay)).toMatchObject({
      ...{ level: 'warn', status: 503, outcome: 'identity_provider_unavailable', cause: 'invalid_client' },
    });
    expect(JSON.stringify(oidc.relay.logs)).not.toContain(wrong);
    await oidc.close();
  });
});

describe('metadata', () => {
  const failed = (cause: string) => ['error', 'identity provider not discovered', cause];
  const CAME = ['info', 'identity provider discovered', undefined];
  const fails: Handler = (_req, res) => void res.writeHead(500).end();

  test('that has never come is asked for four times a second at most', async () => {
    await start();
    provider.answers = { [PATHS.metadata]: fails };
    const from = performance.now();
    for (let n = 0; n < 3; n += 1) expect(await expectUnavailable(await signIn())).toBe('HTTP_500');
    expect(provider.asked(PATHS.metadata)).toBe(3);
    expect(performance.now() - from).toBeGreaterThan(490);
  });

  test('that cannot be used is refused, and fetched again for the next sign-in', async () => {
    await start();
    for (const [metadata, cause] of [
      [{ issuer: 'http://127.0.0.1:1' }, 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED'],
      [{ issuer: undefined }, 'OAUTH_INVALID_RESPONSE'],
      [{ jwks_uri: undefined }, 'NO_JWKS_URI'],
      [{ authorization_endpoint: undefined }, 'NO_AUTHORIZATION_ENDPOINT'],
      [{ token_endpoint: undefined }, 'NO_TOKEN_ENDPOINT'],
      [{ token_endpoint: '/token' }, 'UNSAFE_TOKEN_ENDPOINT'],
      [{ authorization_endpoint: 'javascript:1' }, 'UNSAFE_AUTHORIZATION_ENDPOINT'],
      [{ token_endpoint: 'http://192.0.2.1/' }, 'UNSAFE_TOKEN_ENDPOINT'],
      [404, 'HTTP_404'],
      [204, 'HTTP_204'],
    ] as const) {
      if (typeof metadata === 'object') Object.assign(provider, { metadata });
      else provider.answers = { [PATHS.metadata]: (_req, res) => void res.writeHead(metadata).end() };
      pass();
      expect(await expectUnavailable(await signIn())).toBe(cause);
      expect(told().at(-1)).toEqual(failed(cause));
    }
    expect(provider.requests.map(({ path }) => path)).toEqual(Array(10).fill(PATHS.metadata));
    Object.assign(provider, { metadata: {}, answers: {} });
    pass();
    expect((await signIn()).status).toBe(302);
  });

  test('is fetched again when it is old, is used while that fails, and each change is logged', async () => {
    await start();
    const asked = () => provider.asked(PATHS.metadata);
    await signIn();
    pass(59 * MINUTE);
    await signIn();
    expect([asked(), told()]).toEqual([1, [CAME]]);
    pass(2 * MINUTE);
    provider.metadata.authorization_endpoint = `${provider.issuer}/elsewhere`;
    expect((await signInWith(relay.port)).begun.headers.location).toMatch(/^[^?]*\/elsewhere\?/);
    expect([asked(), told()]).toEqual([2, [CAME]]);
    pass(61 * MINUTE);
    provider.answers = { [PATHS.metadata]: fails };
    for (let round = 0; round < 5; round += 1) expect((await signIn()).status).toBe(302);
    expect([asked(), told()]).toEqual([3, [CAME, failed('HTTP_500')]]);
    pass(2 * MINUTE);
    provider.answers = {};
    expect((await signIn()).status).toBe(302);
    expect([asked(), told()]).toEqual([4, [CAME, failed('HTTP_500'), CAME]]);
  });

  test('that is old is used after a moment if the provider is slow, which is asked once', async () => {
    await start();
    await signIn();
    pass(61 * MINUTE);
    const held: ServerResponse[] = [];
    provider.answers = { [PATHS.metadata]: (_req, res) => void held.push(res) };
    expect((await call(relay.port, '/auth/login')).status).toBe(302);
    // The request to the provider is still open: neither side has ended it.
    expect(held.map(({ destroyed }) => destroyed)).toEqual([false]);
  });

  test('and keys are fetched once for many sign-ins at the same time', async () => {
    await start();
    const answers = await Promise.all(Array.from({ length: 40 }, signIn));
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 302));
    expect([provider.asked(PATHS.metadata), provider.asked(PATHS.keys)]).toEqual([1, 1]);
  });

  test('is asked for again only after a moment, once for all who wait', async () => {
    let begun = 0;
    const work = throttled(async () => {
      begun += 1;
      return begun;
    }, 50);
    pass(0);
    jest.spyOn(performance, 'now').mockReturnValue(1_000);
    expect(await Promise.all([work(), work()])).toEqual([1, 1]);
    const waiting = [work(), work()];
    // Work that need not wait begins at once.
    expect(begun).toBe(1);
    expect(await Promise.all(waiting)).toEqual([2, 2]);
    jest.spyOn(performance, 'now').mockReturnValue(1_050);
    void work();
    expect(begun).toBe(3);
  });
});

describe('an issuer by https', () => {
  const ISSUER = 'https://login.example.com';
  const FLOW = { state: 's'.repeat(43), nonce: 'n', verifier: 'v'.repeat(43), returnTo: '/' };

  /** A provider with this metadata, all addresses that it was asked for, and what was logged. */
  function secureProvider(metadata: Record<string, unknown>, issuer = ISSUER) {
    const [asked, lines] = [new Set<string>(), [] as string[]];
    const one = identityProvider({
      issuer: new URL(issuer),
      clientId: FAKE_CLIENT.id,
      clientSecret: secret(FAKE_CLIENT.secret),
      scopes: 'openid',
      requiredClaim: undefined,
      keepIdToken: false,
      callbackUrl: 'https://app.example.com/auth/callback',
      signedOutUrl: 'https://app.example.com/',
      logger: createLogger('info', { write: (line: string) => void lines.push(line) }),
      fetch: async (url) => {
        asked.add(String(url));
        return Response.json({
          issuer: ISSUER,
          authorization_endpoint: `${ISSUER}/authorize`,
          token_endpoint: `${ISSUER}/token`,
          jwks_uri: `${ISSUER}/keys`,
          ...metadata,
        });
      },
    });
    return { one, asked, lines };
  }

  test('is accepted if all its endpoints are https', async () => {
    const url = new URL(await secureProvider({}).one.signInUrl(FLOW, false));
    expect(url.origin + url.pathname).toBe(`${ISSUER}/authorize`);
  });

  test.each(
    ['authorization', 'token', 'userinfo', 'end_session']
      .map((name) => `${name}_endpoint`)
      .concat('jwks_uri'),
  )('is refused if its %s is in clear text, even on this machine', async (name) => {
    const { one, asked, lines } = secureProvider({ [name]: 'http://127.0.0.1:9/' });
    const refused = { code: 'identity_provider_unavailable', cause: `UNSAFE_${name.toUpperCase()}` };
    // All at once: one after the other, each would wait until the next request to the provider is allowed.
    await Promise.all([
      expect(one.signInUrl(FLOW, false)).rejects.toMatchObject(refused),
      expect(one.finishSignIn('?code=c', FLOW)).rejects.toMatchObject(refused),
      expect(one.verify('a.b.c', 60)).rejects.toMatchObject(refused),
      expect(one.signOutUrl({})).resolves.toBeUndefined(),
    ]);
    expect(asked).toEqual(new Set([`${ISSUER}/.well-known/openid-configuration`]));
    expect(lines.join()).not.toContain(FAKE_CLIENT.secret);
  });

  test('is refused, too, if the metadata at its address names another issuer in clear text', async () => {
    const clear = { issuer: 'http://127.0.0.1:9', token_endpoint: 'http://127.0.0.1:9/token' };
    const { one } = secureProvider(clear, `${ISSUER}/.well-known/openid-configuration`);
    await expect(one.signInUrl(FLOW, false)).rejects.toMatchObject({ cause: 'UNSAFE_TOKEN_ENDPOINT' });
  });
});

describe('the keys of the provider', () => {
  let keys: JWTVerifyGetKey;
  const asked = () => provider.asked(PATHS.keys);
  beforeEach(() => {
    keys = providerKeys(new URL(provider.issuer + PATHS.keys), { fetch, timeoutMs: 5000, minIntervalMs: 50 });
  });
  const verifyToken = (token: string): Promise<string> =>
    jwtVerify(token, keys).then(
      () => 'accepted',
      ({ code }) => code,
    );
  /** Verifies a token of this key, so many times at once. */
  async function verify(signer = provider.signer, times = 1): Promise<string[]> {
    const token = await Object.assign(provider, { signer }).sign({ sub: 'ada' });
    return [...new Set(await Promise.all(Array.from({ length: times }, () => verifyToken(token))))];
  }

  test('are asked for once a second at most for unknown keys, if nothing else is said', async () => {
    keys = providerKeys(new URL(provider.issuer + PATHS.keys), { fetch, timeoutMs: 5000 });
    const stranger = await signingKey('stranger');
    const from = performance.now();
    expect(await verify(stranger, 20)).toEqual(['ERR_JWKS_NO_MATCHING_KEY']);
    expect(asked()).toBe(2);
    // A timer may be early by a millisecond.
    expect(performance.now() - from).toBeGreaterThan(990);
  });

  test('are fetched once for several tokens at the same time, and again for the first token of a new key', async () => {
    const [first, second] = [provider.signer, await signingKey('second')];
    expect([await verify(first, 50), await verify(first), asked()]).toEqual([['accepted'], ['accepted'], 1]);
    provider.published = [first, second];
    expect([await verify(second), asked()]).toEqual([['accepted'], 2]);
  });

  test('are fetched once for many tokens of unknown keys, and not for one that no key could fit', async () => {
    const [first, stranger] = [provider.signer, await signingKey('stranger')];
    await verify(first);
    for (const times of [2, 3]) {
      const forged = verify(stranger, 50);
      provider.signer = first;
      expect(await verify(first)).toEqual(['accepted']);
      expect([await forged, asked()]).toEqual([['ERR_JWKS_NO_MATCHING_KEY'], times]);
    }
    const [, claims] = (await provider.sign({ sub: 'ada' })).split('.');
    const header = Buffer.from('{"alg":"HS256"}').toString('base64url');
    expect(await verifyToken(`${header}.${claims}.c2lnbmF0dXJl`)).toBe('ERR_JOSE_NOT_SUPPORTED');
    expect(asked()).toBe(3);
  });

  test('that the provider has withdrawn are refused when the kept ones are old', async () => {
    const [first, second] = [provider.signer, await signingKey('second')];
    await verify(first);
    provider.published = [second];
    advanceClocks({ date: 9 * MINUTE, monotonic: 9 * MINUTE });
    expect([await verify(first), asked()]).toEqual([['accepted'], 1]);
    advanceClocks({ date: 11 * MINUTE, monotonic: 11 * MINUTE });
    expect([await verify(first), await verify(second)]).toEqual([['ERR_JWKS_NO_MATCHING_KEY'], ['accepted']]);
  });

  test('are not available if the provider does not give them, which is not a fault of the token', async () => {
    provider.answers = { [PATHS.keys]: (_req, res) => void res.end('{}') };
    expect(await verify()).toEqual(['KEYS_UNAVAILABLE']);
    provider.answers = {};
    expect(await verify()).toEqual(['accepted']);
  });

  test('that change directly after the relay has fetched the old ones do not stop a sign-in', async () => {
    await start();
    expect((await signIn()).status).toBe(302);
    const second = await signingKey('second');
    Object.assign(provider, { published: [second], signer: second });
    pass();
    for (let n = 0; n < 2; n += 1) expect((await signIn()).status).toBe(302);
    expect(asked()).toBe(2);
  });
});

describe('a provider that answers with', () => {
  const json =
    (status: number, body: string, headers: Record<string, string> = {}): Handler =>
    (_req, res) =>
      void res.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(body);
  const HTML = { 'Content-Type': 'text/html' };
  /** A provider that is asked at each of its paths during a sign-in. */
  beforeEach(async () => {
    provider.metadata.userinfo_endpoint = provider.issuer + PATHS.userinfo;
    provider.claims = { name: undefined };
    await start();
  });

  test.each<[string, Handler]>([
    ['a page', json(200, '<html>canary-page</html>', HTML)],
    ['a page of an error', json(500, '<html>canary-page</html>', HTML)],
    ['an error', json(503, '{"canary":"page"}')],
    ['a redirect', json(302, '', { Location: '/elsewhere' })],
    ['nothing', json(200, '')],
    ['broken JSON', json(200, '{"issuer":"canary-page')],
    ['a list', json(200, '["canary-page"]')],
    ['null', json(200, 'null')],
    ['a reset', (req) => void req.socket.resetAndDestroy()],
  ])('%s at one of its paths counts as out of reach, and works afterwards', async (_, handler) => {
    for (const path of Object.values(PATHS)) {
      provider.answers = { [path]: handler };
      await expectUnavailable(await signIn());
      pass();
    }
    provider.answers = {};
    expect((await signIn()).status).toBe(302);
    expect(provider.asked('/elsewhere')).toBe(0);
    expect(JSON.stringify(relay.logs)).not.toContain('canary-page');
  });

  test('what looks like a secret has it not logged', async () => {
    const words = { code: 'canary-leaked code', name: 'canary leaked', message: 'canary-leaked' };
    for (const answer of [
      json(200, JSON.stringify(words)),
      json(400, JSON.stringify({ error: 'canary-leaked code', ...words })),
    ]) {
      provider.answers = { [PATHS.token]: answer };
      expect((await signIn()).status).not.toBe(302);
    }
    expect(JSON.stringify(relay.logs)).not.toMatch(/canary.leaked/);
  });

  test.each([PATHS.metadata, PATHS.keys, PATHS.token])(
    'what never ends, at %s, is read up to a limit',
    async (path) => {
      let answer: ServerResponse | undefined;
      provider.answers = {
        [path]: (_req, res) => {
          answer = res.writeHead(200, { 'Content-Type': 'application/json' });
          const push = () => {
            while (!res.destroyed && res.write(' '.repeat(65_536)));
          };
          res.on('drain', push);
          push();
        },
      };
      expect(await expectUnavailable(await signIn())).toBe('ANSWER_TOO_LARGE');
      await until(() => answer?.closed === true);
      provider.answers = {};
      pass();
      expect((await signIn()).status).toBe(302);
    },
  );

  const never: Handler = () => {};
  const slowly: Handler = (_req, res) =>
    void res.writeHead(200, { 'Content-Type': 'application/json' }).write('{');
  test.each<[what: string, path: string, hang: Handler, cause: unknown]>([
    ['no metadata', PATHS.metadata, never, 'OAUTH_TIMEOUT'],
    ['no tokens', PATHS.token, never, 'OAUTH_TIMEOUT'],
    [
      'tokens that come very slowly',
      PATHS.token,
      slowly,
      expect.stringMatching(/^OAUTH_(PARSE_ERROR|TIMEOUT)$/),
    ],
    ['no keys', PATHS.keys, never, 'ERR_JWKS_TIMEOUT'],
    ['no user data', PATHS.userinfo, never, 'OAUTH_TIMEOUT'],
  ])('%s is waited for 5 seconds', async (_what, path, hang, cause) => {
    const limits: { ms: number; end: () => void }[] = [];
    jest.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => {
      const controller = new AbortController();
      limits.push({ ms, end: () => controller.abort(new DOMException('too late', 'TimeoutError')) });
      return controller.signal;
    });
    provider.answers = { [path]: hang };
    const signingIn = signInWith(relay.port);
    await until(() => provider.asked(path) === 1);
    expect(limits.map(({ ms }) => ms)).toEqual(limits.map(() => 5_000));
    limits.at(-1)?.end();
    const { ended, cookie } = await signingIn;
    expect(await expectUnavailable(ended)).toEqual(cause);
    expectNobody(await call(relay.port, '/auth/session', { headers: { Cookie: cookie } }));
  });

  test('nothing, since it is out of reach, lets sessions go on, and works when it starts', async () => {
    const { cookie, ended } = await signInWith(relay.port);
    expect(ended.status).toBe(302);
    const [known, fresh] = [relay, await start()];
    await provider.close();
    const begun = await call(fresh.port, '/auth/login');
    expect(await expectUnavailable(begun)).toBe('ECONNREFUSED');
    expect(begun.headers).not.toHaveProperty('set-cookie');
    expect(told()).toEqual([['error', 'identity provider not discovered', 'ECONNREFUSED']]);
    // A relay that has the metadata lets a sign-in begin.
    const other = await signInWith(known.port);
    expect(other.begun.status).toBe(302);
    expect(await expectUnavailable(other.ended, known)).toBe('ECONNREFUSED');
    const session = await call(known.port, '/auth/session', { headers: { Cookie: cookie } });
    expect(isSignedIn(session)).toBe(true);
    provider = await startFakeProvider(Number(new URL(provider.issuer).port));
    pass();
    expect((await signIn()).status).toBe(302);
  });
});

const user = (claims: Record<string, unknown>) => userOf({ sub: 'ada', ...claims } as Claims);

describe('the claims of a user', () => {
  test('have the subject as the id, if a header can carry it', () => {
    for (const sub of ['a', '00u1|x@example.com', 'Ada Lovelace', '!~', 'x'.repeat(255)])
      expect(user({ sub })).toEqual({ id: sub, name: sub.slice(0, 200) });
    const options = expect.objectContaining({ level: 'warn' });
    const refusal = { code: 'sign_in_failed', status: 400, cause: 'bad_subject', options };
    const bad = [
      '',
      ' ',
      ' ada',
      'ada ',
      'ada\n',
      'ada\r\nX-API-KEY: canary',
      'a\0da',
      'a\x7fda',
      'adä',
      'a\ud800',
    ];
    for (const sub of [...bad, 'x'.repeat(256), 7, ['ada'], null])
      expect(() => user({ sub })).toThrow(expect.objectContaining(refusal));
  });

  const email = 'a@example.com';
  test.each([
    ['name', { name: ' Ada  L. ', preferred_username: 'al', email }, 'Ada  L.'],
    ['user name', { preferred_username: 'al', email }, 'al'],
    ['address, if others are empty', { name: '', preferred_username: ' \t', email }, email],
    ['subject', {}, 'ada'],
    ['subject, if others are no text', { name: ['Ada'], preferred_username: 7, email: null }, 'ada'],
  ])('are shown as the %s', (_, claims, name) => {
    expect(user(claims)).toEqual({ id: 'ada', name });
  });

  test('are cut to a name of 200 UTF-16 units, never within a character, and half a pair is replaced', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(...'a é€😀'), minLength: 1, maxLength: 300, size: 'max' }),
        (text) => {
          const { name } = user({ name: `n${text}n` });
          expect(name.isWellFormed()).toBe(true);
          expect(`n${text}n`.startsWith(name)).toBe(true);
          expect(name.length).toBeGreaterThanOrEqual(Math.min(text.length + 2, 199));
          expect(name.length).toBeLessThanOrEqual(200);
        },
      ),
    );
    expect(user({ name: `n${'😀'.repeat(200)}` }).name).toBe(`n${'😀'.repeat(99)}`);
    expect(user({ name: 'a\ud800b\udc00' }).name).toBe('a\ufffdb\ufffd');
  });

  test('meet a required claim by exactly its value, alone or in a list, and by nothing else', () => {
    const refusal = (name: string, value: string, claims: object) =>
      refusalOf({ sub: 'ada', ...claims }, { name, value });
    const met = { chat: 'chat', a: ['a', 'chat', 'b'], true: true, false: false, 7: 7 };
    for (const [value, groups] of Object.entries(met))
      expect(refusal('groups', value, { groups })).toBeUndefined();
    const others = [
      'other',
      'chat-2',
      'Chat',
      'a chat b',
      ['a', 'chat-2'],
      [],
      [['chat']],
      { chat: true },
      false,
    ];
    for (const groups of others) expect(refusal('groups', 'chat', { groups })).toBe('claim_differs');
    expect(refusal('groups', 'null', { groups: null })).toBe('claim_absent');
    for (const name of ['groups', 'constructor', '__proto__'])
      expect(refusal(name, 'x', {})).toBe('claim_absent');
    expect(refusalOf({ sub: 'ada' }, undefined)).toBeUndefined();
  });
});

describe('where a claim is required,', () => {
  const GROUPS = 'https://example.com/groups';
  const MEMBER = { sub: 'ada', name: 'Ada of userinfo', [GROUPS]: ['chat-users'] };
  const OTHER = { [GROUPS]: ['others'] };
  beforeEach(async () => {
    provider.metadata.userinfo_endpoint = provider.issuer + PATHS.userinfo;
    provider.claims = { name: undefined };
    await start({ OIDC_REQUIRED_CLAIM: `${GROUPS}:chat-users` });
  });
  const nameOf = async (Cookie: string) =>
    JSON.parse((await call(relay.port, '/auth/session', { headers: { Cookie } })).body).user.name;

  test('userinfo is fetched with the access token if the ID token lacks it, and not otherwise', async () => {
    provider.userinfo = MEMBER;
    const { ended, cookie } = await signInWith(relay.port);
    expect([ended.status, await nameOf(cookie)]).toEqual([302, 'Ada of userinfo']);
    const asked = provider.requests.find(({ path }) => path === PATHS.userinfo);
    expect(asked?.headers.authorization).toBe('Bearer an-access-token');
    provider.claims = { ...MEMBER, name: 'b'.repeat(100_000) };
    const all = await signInWith(relay.port);
    expect([all.ended.status, await nameOf(all.cookie)]).toEqual([302, 'b'.repeat(200)]);
    expect(provider.asked(PATHS.userinfo)).toBe(1);
  });

  test.each<[string, object, object, number, unknown]>([
    ['userinfo that differs', {}, { ...MEMBER, ...OTHER }, 403, 'claim_differs'],
    ['no claim anywhere', {}, {}, 403, 'claim_absent'],
    ['an ID token that differs from userinfo', OTHER, MEMBER, 403, 'claim_differs'],
    ['userinfo of another user', {}, { ...MEMBER, sub: 'root' }, 400, expect.any(String)],
    ['userinfo of nobody', {}, { ...MEMBER, sub: undefined }, 400, expect.any(String)],
  ])('%s signs nobody in', async (_what, claims, userinfo, status, cause) => {
    Object.assign(provider.claims, claims);
    provider.userinfo = { sub: 'ada', ...userinfo };
    const { ended, cookie } = await signInWith(relay.port);
    const code = status === 403 ? 'not_allowed' : 'sign_in_failed';
    expectProblem(ended, status, code);
    expect(cookie).not.toContain('bot_relay_session');
    const line = await lineOf(ended);
    expect(line).toMatchObject({ outcome: code, cause });
    // Users are named once it is known who they are.
    expect(line.userId).toBe(status === 403 ? 'ada' : undefined);
  });
});
