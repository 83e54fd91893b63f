import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import {
  type FakeLoadBalancer,
  type FakeLoadBalancerOptions,
  startFakeLoadBalancer,
} from '../harness/faults/fake-load-balancer.ts';
import { type Checked, checkEnvironment, printCheck, runCheck } from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  startIdentityProvider,
} from '../harness/service/identity-provider.ts';

let service: BotService | undefined;
let front: FakeLoadBalancer | undefined;
let relay: TestRelay | undefined;
let provider: IdentityProviderServer | undefined;
let broken: Server | undefined;
afterEach(async () => {
  await relay?.close();
  await front?.close();
  await service?.close();
  await provider?.close();
  broken?.closeAllConnections();
  broken?.close();
  service = front = relay = provider = broken = undefined;
  await stopProcesses();
});

/** The check of a provider that never answers. It takes seconds, so it runs beside the other cases. */
let unanswered: Promise<Checked>;
const silent = createServer(() => {});
beforeAll(async () => {
  const environment = checkEnvironment('http://127.0.0.1:9', oidcAt(await listen(silent)));
  unanswered = runCheck(['--no-messages'], environment);
});
afterAll(() => {
  silent.closeAllConnections();
  silent.close();
});

const NO_USERS = { USERS_FILE: '/no/such/users.json' };
const GUEST = { AUTH_MODE: 'guest', ...NO_USERS };
const oidcAt = (issuer: string) => ({
  AUTH_MODE: 'oidc',
  OIDC_ISSUER: issuer,
  OIDC_CLIENT_ID: CLIENT.id,
  OIDC_CLIENT_SECRET: CLIENT.secret,
  ...NO_USERS,
});

interface Setup {
  readonly environment: Record<string, string>;
  readonly args?: readonly string[];
  /** Environment of the check alone. */
  readonly differs?: Record<string, string>;
  readonly options?: FakeLoadBalancerOptions;
}

/** Runs the check through a load balancer, against a relay and the demo's bot service. */
async function checkThrough({ environment, args = [], differs, options = {} }: Setup): Promise<Checked> {
  service = await startBotService({ keys: [CANARY.key], limit: 100, speed: { wordMs: 40 } });
  front ??= await startFakeLoadBalancer(options);
  const all = { BOTS: 'demo/echo', PUBLIC_URL: front.url, ...environment };
  relay = await startRelay(service.url, all);
  front.forwardTo(relay.port);
  const brief = ['--text', 'Hi', ...args];
  return runCheck(['--through', front.url, ...brief], checkEnvironment(service.url, { ...all, ...differs }));
}

/** Runs the check against a relay whose users sign in at a real provider. */
async function checkAtProvider({ environment = {}, options, ...setup }: Partial<Setup> = {}) {
  front = await startFakeLoadBalancer(options);
  const base = environment.BASE_PATH ?? '';
  provider = await startIdentityProvider(front.url + base);
  return checkThrough({ ...setup, environment: { ...oidcAt(provider.issuer), ...environment } });
}

/** Starts a provider that answers with `listener`. */
function startBroken(listener: RequestListener): Promise<string> {
  broken = createServer(listener);
  return listen(broken);
}

async function listen(server: Server): Promise<string> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const problemsOf = ({ rows }: Checked) =>
  rows.filter(({ state }) => state === 'problem').map(({ check }) => check);
const adviceOf = ({ rows }: Checked, check: string) =>
  rows.filter((row) => row.check === check && row.state !== 'ok').map(({ advice }) => advice);

function expectNoDocument(checked: Checked, code: string, advice: string): void {
  expect(checked.of('identity provider')).toEqual([`problem its discovery document cannot be had (${code})`]);
  expect(adviceOf(checked, 'identity provider')).toEqual([expect.stringContaining(advice)]);
  expect(checked.code).toBe(1);
}

test.each([
  ['guest', GUEST],
  ['oidc', oidcAt('http://127.0.0.1:1')],
])('with AUTH_MODE=%s no users file is needed', async (mode, environment) => {
  const checked = await runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', environment));
  expect(checked.of('users')).toEqual([]);
  expect(checked.code).toBe(1);
  expect(checked.of('configuration')[0]).toBe(`ok good; AUTH_MODE=${mode}, 1 bot in BOTS`);
  const password = await runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', NO_USERS));
  expect([password.code, password.of('users').length]).toEqual([78, 1]);
});

describe('a relay for guests', () => {
  test('has no problem from the sign-in of a guest to the sign-out', async () => {
    // The second guest must ask during the run of the first.
    const args = ['--text', 'Hi '.repeat(25)];
    const checked = await checkThrough({ environment: GUEST, args });
    expect(problemsOf(checked)).toEqual([]);
    expect([checked.code, checked.messages]).toEqual([0, 3]);
    expect(checked.progress).toMatch(/^Sending up to 3 messages/);
    expect(checked.of('sign-in')).toEqual(['ok a guest is signed in']);
    expect(checked.of('cookie')).toEqual(['ok bot_relay_session, HttpOnly, SameSite=strict']);
    expect(checked.of('session')).toEqual(['ok known on 5 of 5 new connections']);
    expect(checked.of('headers')).toEqual(['ok as they should be', 'ok as they should be']);
    expect(checked.of('sign-out')).toEqual(['ok the session is over']);
    const logouts = relay?.logs.filter(({ route }) => route === '/auth/logout');
    const guest = expect.objectContaining({ status: 204, userId: expect.stringMatching(/^guest:/) });
    // The second guest is there to see nothing of the first.
    expect(logouts).toEqual([guest, guest]);
    expect(new Set(logouts?.map(({ userId }) => userId)).size).toBe(2);
    expect(checked.of('users apart')).toEqual([expect.stringMatching(/^ok a second user /)]);
  });

  test('needs no --user and asks for no password, and the check says so', async () => {
    const checked = await checkThrough({ environment: GUEST, args: ['--user', 'ada', '--no-messages'] });
    expect([checked.code, checked.messages]).toEqual([0, 0]);
    expect(checked.of('sign-in')).toEqual([
      'note --user is not used: with AUTH_MODE=guest visitors need no name',
      'ok a guest is signed in',
    ]);
  });

  test('may refuse another guest from this address', async () => {
    const environment = { ...GUEST, GUESTS_PER_ADDRESS: '1' };
    const full = await checkThrough({ environment, args: ['--no-messages'] });
    expect(full.code).toBe(0);
    expect(full.rows).toContainEqual(
      expect.objectContaining({ state: 'note', check: 'sign-in', about: 'second user' }),
    );
    const args = ['--no-messages', '--through', front?.url as string];
    const more = { BOTS: 'demo/echo', PUBLIC_URL: front?.url as string, ...environment };
    const checked = await runCheck(args, checkEnvironment(service?.url as URL, more));
    expect(checked.of('sign-in')).toEqual(['problem answered with 429 too_many_attempts']);
    expect(adviceOf(checked, 'sign-in')).toEqual([expect.stringContaining('GUESTS_PER_ADDRESS')]);
  });

  test('may run with another AUTH_MODE than the check', async () => {
    const checked = await checkThrough({ environment: {}, differs: GUEST });
    expect(checked.of('sign-in')).toEqual(['problem answered with 404 not_found']);
    expect(adviceOf(checked, 'sign-in')).toEqual([
      'The relay has no /auth/guest: look at its AUTH_MODE and BASE_PATH.',
    ]);
  });
});

describe('the identity provider', () => {
  test('gets a row with its host and the time of its answer', async () => {
    provider = await startIdentityProvider('http://127.0.0.1:3000');
    const environment = checkEnvironment('http://127.0.0.1:9', oidcAt(provider.issuer));
    const checked = await runCheck(['--no-messages'], environment);
    const rows = checked.rows.filter(({ check }) => check === 'identity provider');
    expect(rows).toEqual([
      {
        state: 'ok',
        check: 'identity provider',
        about: new URL(provider.issuer).host,
        says: expect.stringMatching(/^its discovery document came in \d+ ms$/),
        advice: null,
        measured: { discoveryMs: expect.any(Number) },
      },
    ]);
  });

  const json = (document: object): RequestListener => {
    return (_req, res) =>
      res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(document));
  };
  test.each<[string, RequestListener, string, string]>([
    ['has no document', (_req, res) => res.writeHead(404).end(), 'HTTP_404', 'well-known'],
    ['fails', (_req, res) => res.writeHead(502).end(), 'HTTP_502', 'fails'],
    [
      'leads elsewhere',
      (_req, res) => res.writeHead(302, { Location: 'https://elsewhere.example/' }).end(),
      'HTTP_302',
      'well-known',
    ],
    [
      'answers with a page',
      (_req, res) => res.writeHead(200, { 'Content-Type': 'text/html' }).end(`<p>${CANARY.key}`),
      'OAUTH_RESPONSE_IS_NOT_JSON',
      'well-known',
    ],
    [
      'calls itself something else',
      json({ issuer: `https://elsewhere.example/${CANARY.key}` }),
      'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED',
      'exactly',
    ],
    ['closes the connection', (req) => req.socket.destroy(), 'UND_ERR_SOCKET', 'closed the connection'],
  ])('that %s is a problem', async (_what, listener, code, advice) => {
    const environment = checkEnvironment('http://127.0.0.1:9', oidcAt(await startBroken(listener)));
    expectNoDocument(await runCheck(['--no-messages'], environment), code, advice);
  });

  test.each([
    ['has no name', 'https://no-such-name.invalid', '(ENOTFOUND|EAI_AGAIN)'],
    ['does not listen', 'http://127.0.0.1:2', 'ECONNREFUSED'],
  ])('that %s is a problem', async (_what, issuer, code) => {
    const environment = checkEnvironment('http://127.0.0.1:9', oidcAt(issuer));
    const checked = await runCheck(['--no-messages'], environment);
    expect(checked.of('identity provider')).toEqual([
      expect.stringMatching(`^problem its discovery document cannot be had \\(${code}\\)$`),
    ]);
    expect(adviceOf(checked, 'identity provider')).toEqual([
      expect.not.stringMatching(/^Look at the host, the port and the network/),
    ]);
  });

  test('is a problem if its metadata names no authorization endpoint or no keys', async () => {
    const document: Record<string, string> = {};
    const issuer = await startBroken((req, res) => json(document)(req, res));
    const environment = checkEnvironment('http://127.0.0.1:9', oidcAt(issuer));
    document.issuer = issuer;
    const keyless = await runCheck(['--no-messages'], environment);
    expect(keyless.of('identity provider')).toEqual([
      'problem its discovery document cannot be had (NO_JWKS_URI)',
    ]);
    document.jwks_uri = `${issuer}/keys`;
    const placeless = await runCheck(['--no-messages'], environment);
    expect(placeless.of('identity provider')).toEqual([
      'problem its discovery document cannot be had (NO_AUTHORIZATION_ENDPOINT)',
    ]);
  });
});

describe('the client at the identity provider', () => {
  const WRONG_ADVICE = expect.stringMatching(/OIDC_CLIENT_ID.*OIDC_CLIENT_SECRET/);
  async function checkClient(environment: Record<string, string> = {}) {
    provider = await startIdentityProvider('http://127.0.0.1:3000');
    const all = { ...oidcAt(provider.issuer), ...environment };
    return runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', all));
  }
  /** Runs the check against a provider with `metadata` whose token endpoint answers with `listener`. */
  async function checkAnswer(listener: RequestListener, metadata: object = {}) {
    const document: Record<string, unknown> = {};
    const issuer = await startBroken((req, res) => {
      if (req.url === '/token') listener(req, res);
      else res.setHeader('Content-Type', 'application/json').end(JSON.stringify(document));
    });
    Object.assign(document, {
      issuer,
      authorization_endpoint: `${issuer}/authorize`,
      token_endpoint: `${issuer}/token`,
      jwks_uri: `${issuer}/keys`,
      end_session_endpoint: `${issuer}/end`,
      backchannel_logout_supported: true,
      ...metadata,
    });
    return runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', oidcAt(issuer)));
  }
  const refusing =
    (status: number, error?: string, headers: Record<string, string> = {}): RequestListener =>
    (_req, res) =>
      void res
        .writeHead(status, { 'Content-Type': 'application/json', ...headers })
        .end(JSON.stringify(error === undefined ? {} : { error, error_description: CANARY.key }));

  test('is known by its id and secret', async () => {
    const checked = await checkClient();
    expect(checked.of('client')).toEqual([
      'ok its id and secret are right: the provider refuses a made-up code alone (invalid_grant)',
    ]);
    expect(checked.rows.find(({ check }) => check === 'client')?.about).toBe(CLIENT.id);
    expect(provider?.asked.filter((path) => path === '/token')).toHaveLength(1);
  });

  test.each([
    ['secret', { OIDC_CLIENT_SECRET: `${CLIENT.secret}-not` }],
    ['id', { OIDC_CLIENT_ID: 'another' }],
  ])('with a wrong %s is a problem', async (_what, environment) => {
    const checked = await checkClient(environment);
    expect(checked.of('client')).toEqual(['problem the provider does not accept it (invalid_client)']);
    expect(adviceOf(checked, 'client')).toEqual([WRONG_ADVICE]);
    expect(checked.code).toBe(1);
    expect(JSON.stringify(checked)).not.toContain(CLIENT.secret);
  });

  test.each<[string, RequestListener, string]>([
    ['may not use codes', refusing(400, 'unauthorized_client'), 'unauthorized_client'],
    ['is refused with another error', refusing(401, 'invalid_request'), 'invalid_request'],
    ['is refused with 401 and no error', (_req, res) => res.writeHead(401).end(), 'HTTP_401'],
    [
      'is refused with a challenge',
      refusing(401, undefined, { 'WWW-Authenticate': 'Basic realm="x"' }),
      'OAUTH_WWW_AUTHENTICATE_CHALLENGE',
    ],
  ])('that %s is a problem', async (_what, listener, word) => {
    const checked = await checkAnswer(listener);
    expect(checked.of('client')).toEqual([`problem the provider does not accept it (${word})`]);
    expect(adviceOf(checked, 'client')).toEqual([WRONG_ADVICE]);
  });

  test.each<[string, RequestListener, string]>([
    ['gets a 500', (_req, res) => res.writeHead(500).end(), 'HTTP_500'],
    ['gets another error', refusing(400, 'invalid_request'), 'invalid_request'],
    ['gets an error that is not a code', refusing(400, `x ${CANARY.key}`), 'other'],
    ['gets no answer', (req) => req.socket.destroy(), 'UND_ERR_SOCKET'],
    [
      'is given tokens for nothing',
      (_req, res) =>
        res
          .setHeader('Content-Type', 'application/json')
          .end(JSON.stringify({ access_token: CANARY.key, token_type: 'Bearer' })),
      'tokens',
    ],
  ])('that %s is a note', async (_what, listener, word) => {
    const checked = await checkAnswer(listener);
    expect(checked.of('client')).toEqual([`note not proven: the answer to a made-up code was ${word}`]);
    expect(adviceOf(checked, 'client')).toEqual(['Sign in once in a browser.']);
  });

  test('is proven by a request like that of the relay', async () => {
    let proof = '';
    const form: string[] = [];
    await checkAnswer((req, res) => {
      proof = Buffer.from(String(req.headers.authorization).replace('Basic ', ''), 'base64').toString();
      req.setEncoding('utf8').on('data', (text: string) => form.push(text));
      req.on('end', () => refusing(400, 'invalid_grant')(req, res));
    });
    expect(decodeURIComponent(proof)).toBe(`${CLIENT.id}:${CLIENT.secret}`);
    expect(Object.fromEntries(new URLSearchParams(form.join('')))).toEqual({
      grant_type: 'authorization_code',
      code: expect.stringMatching(/^[\w-]{43}$/),
      code_verifier: expect.stringMatching(/^[\w-]{43}$/),
      redirect_uri: 'http://127.0.0.1:3000/auth/callback',
    });
  });

  const good = refusing(400, 'invalid_grant');
  test.each<[string, object, string[]]>([
    ['all', { scopes_supported: ['profile', 'email', 'openid'] }, ['ok the provider has all of OIDC_SCOPES']],
    ['not all of', { scopes_supported: ['openid'] }, ['note the provider does not name profile']],
    [
      'no openid among',
      { scopes_supported: ['email'] },
      ['problem the provider does not name openid, profile'],
    ],
    ['nothing of', {}, []],
    ['no list of', { scopes_supported: 'openid' }, []],
  ])('asks for scopes, of which the metadata name %s', async (_what, metadata, rows) => {
    const checked = await checkAnswer(good, metadata);
    expect(checked.of('scopes')).toEqual(rows);
    for (const advice of adviceOf(checked, 'scopes')) expect(advice).toMatch(/^Look at OIDC_/);
  });

  test.each<[string, object, RegExp[]]>([
    ['both ways', {}, []],
    ['only from the provider', { end_session_endpoint: undefined }, [/^note .*end_session_endpoint/]],
    ['only to the provider', { backchannel_logout_supported: undefined }, [/^note .*back-channel logout/]],
    [
      'neither way',
      { backchannel_logout_supported: false, end_session_endpoint: undefined },
      [/^note .*end_session_endpoint/, /^note .*back-channel logout/],
    ],
  ])('signs users out %s, or the check notes that it does not', async (_what, metadata, rows) => {
    const checked = await checkAnswer(good, metadata);
    expect(checked.of('logout')).toEqual(rows.map((row) => expect.stringMatching(row)));
  });
});

const NOBODY = 'note nobody was signed in, since this needs a browser: session and message are not checked';

describe('a relay whose users sign in at an identity provider', () => {
  test.each(['', '/chat-api'])(
    'is good as far as one gets without a browser, with the base path "%s"',
    async (base) => {
      const checked = await checkAtProvider({ environment: base ? { BASE_PATH: base } : {} });
      expect(problemsOf(checked)).toEqual([]);
      expect([checked.code, checked.messages]).toEqual([0, 2]);
      expect(checked.progress).toMatch(/^Sending up to 2 messages,/);
      expect(checked.of('not signed in')).toEqual(['ok a message is refused with 401, as problem+json']);
      expect(checked.of('headers')).toEqual(['ok as they should be']);
      expect(checked.of('cookie')).toEqual(['ok of the sign-in: HttpOnly, SameSite=lax']);
      const host = new URL(provider?.issuer as string).host;
      expect(checked.of('sign-in')).toEqual([
        `ok leads to ${host}, and back to ${front?.url}${base}/auth/callback`,
        NOBODY,
      ]);
      expect(adviceOf(checked, 'sign-in')).toEqual([`Open ${front?.url}${base}/auth/login in a browser.`]);
      expect(checked.of('callback')).toEqual(['ok without a sign-in is refused by the relay']);
      expect(JSON.stringify(checked)).not.toContain(CLIENT.secret);
    },
  );

  test('needs neither --user nor a password, and the check says so', async () => {
    const checked = await checkAtProvider({ args: ['--user', 'ada', '--no-messages'] });
    expect(checked.code).toBe(0);
    expect(checked.of('sign-in')[0]).toBe(
      'note --user is not used: with AUTH_MODE=oidc users sign in at the identity provider',
    );
  });

  test('is a problem if it sends browsers to a provider that cannot send them back', async () => {
    const elsewhere = { PUBLIC_URL: 'http://127.0.0.1:8080' };
    front = await startFakeLoadBalancer();
    provider = await startIdentityProvider(front.url);
    const environment = { ...oidcAt(provider.issuer), ...elsewhere };
    const checked = await checkThrough({ environment, differs: { PUBLIC_URL: front.url } });
    expect(checked.of('sign-in')).toEqual([
      `problem leads back to http://127.0.0.1:8080/auth/callback, and not to ${front.url}/auth/callback`,
      NOBODY,
    ]);
    expect(checked.code).toBe(1);
  });

  test('is a problem if it sends them to another provider, as another client', async () => {
    front = await startFakeLoadBalancer();
    provider = await startIdentityProvider(front.url);
    const other = await startIdentityProvider(front.url);
    try {
      const environment = oidcAt(provider.issuer);
      const differs = { OIDC_ISSUER: other.issuer, OIDC_CLIENT_ID: 'another' };
      const checked = await checkThrough({ environment, differs });
      expect(checked.of('sign-in')[0]).toBe(
        `problem leads to ${provider.issuer}/auth, and not to ${other.issuer}/auth; names another OIDC_CLIENT_ID`,
      );
    } finally {
      await other.close();
    }
  });

  test('is a problem if it cannot reach the provider', async () => {
    front = await startFakeLoadBalancer();
    provider = await startIdentityProvider(front.url);
    const environment = oidcAt('http://127.0.0.1:2');
    const checked = await checkThrough({ environment, differs: { OIDC_ISSUER: provider.issuer } });
    expect(checked.of('sign-in')).toEqual([
      'problem answered with 503 identity_provider_unavailable',
      NOBODY,
    ]);
    expect(adviceOf(checked, 'sign-in')[0]).toMatch(/does not get through to the identity provider/);
  });

  test('is a problem if it runs with another AUTH_MODE than the check', async () => {
    front = await startFakeLoadBalancer();
    provider = await startIdentityProvider(front.url);
    const checked = await checkThrough({ environment: {}, differs: oidcAt(provider.issuer) });
    expect(checked.of('sign-in')).toEqual(['problem answered with 405 method_not_allowed', NOBODY]);
    expect(adviceOf(checked, 'sign-in')[0]).toMatch(/AUTH_MODE/);
  });

  test('is a problem behind a load balancer that drops cookies or the callback', async () => {
    const checked = await checkAtProvider({
      options: {
        tamper: (headers) => delete headers['set-cookie'],
        answer: (req, res) => {
          if (!req.url?.startsWith('/auth/callback')) return false;
          res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>the page');
          return true;
        },
      },
    });
    expect(checked.of('cookie')).toEqual(['problem none came for the sign-in']);
    expect(checked.of('callback')).toEqual(['problem answered with 200 (text/html)']);
    expect(problemsOf(checked)).toEqual(['cookie', 'callback']);
  });

  test('is a problem behind a load balancer that rewrites cookies and headers', async () => {
    const checked = await checkAtProvider({
      options: {
        tamper: (headers) => {
          const [cookie] = headers['set-cookie'] ?? [];
          if (cookie) headers['set-cookie'] = [cookie.replace('; HttpOnly', '').replace('Lax', 'Strict')];
          if (headers.location) headers['cache-control'] = 'public';
        },
      },
    });
    expect(checked.of('cookie')).toEqual([
      'problem of the sign-in: it is not HttpOnly; it is not SameSite=lax',
    ]);
    expect(checked.of('headers')).toEqual(['problem Cache-Control does not say no-store']);
  });

  test('prints a table without a secret', async () => {
    await checkAtProvider({ args: ['--no-messages'] });
    const environment = {
      BOTS: 'demo/echo',
      PUBLIC_URL: front?.url as string,
      ...oidcAt(provider?.issuer as string),
    };
    const { code, text } = await printCheck(
      ['--no-messages', '--through', front?.url as string],
      checkEnvironment(service?.url as URL, environment),
    );
    expect(code).toBe(0);
    expect(text).toMatch(
      /^ok {7}identity provider +127\.0\.0\.1:\d+ +its discovery document came in \d+ ms$/m,
    );
    expect(text).not.toContain(CLIENT.secret);
  });
});

// The last test, since it has waited meanwhile.
test('an identity provider that never answers is a problem', async () => {
  expectNoDocument(await unanswered, 'OAUTH_TIMEOUT', 'firewalls');
});
