import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/demo/bot-service.ts';
import { type Checked, checkEnvironment, printCheck, runCheck } from '../support/check.ts';
import { type Front, type FrontOptions, startFront } from '../support/front.ts';
import { CLIENT, type IdentityProviderServer, startIdentityProvider } from '../support/identity-provider.ts';
import { stopProcesses } from '../support/process.ts';
import { CANARY, startRelay, type TestRelay } from '../support/relay.ts';

let service: BotService | undefined;
let front: Front | undefined;
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
  /** What only the check is told. */
  readonly differs?: Record<string, string>;
  readonly options?: FrontOptions;
}

/** Checks a relay behind a front, with the embedded bot service behind it. */
async function checkThrough({ environment, args = [], differs, options = {} }: Setup): Promise<Checked> {
  service = await startBotService({ keys: [CANARY.key], pace: { wordMs: 40 } });
  front ??= await startFront(options);
  const all = { BOTS: 'demo/echo', PUBLIC_URL: front.url, ...environment };
  relay = await startRelay(service.url, all);
  front.leadTo(relay.port);
  return runCheck(['--through', front.url, ...args], checkEnvironment(service.url, { ...all, ...differs }));
}

/** Checks a relay whose users sign in at a real provider. */
async function checkAtProvider({ environment = {}, options, ...setup }: Partial<Setup> = {}) {
  front = await startFront(options);
  const base = environment.BASE_PATH ?? '';
  provider = await startIdentityProvider(front.url + base);
  return checkThrough({ ...setup, environment: { ...oidcAt(provider.issuer), ...environment } });
}

/** A provider that answers with `listener`. */
async function startBroken(listener: RequestListener): Promise<string> {
  broken = createServer(listener);
  await once(broken.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(broken.address() as AddressInfo).port}`;
}

const problemsOf = ({ rows }: Checked) =>
  rows.filter(({ state }) => state === 'problem').map(({ check }) => check);
const adviceOf = ({ rows }: Checked, check: string) =>
  rows.filter((row) => row.check === check && row.state !== 'ok').map(({ advice }) => advice);

test.each([
  ['guest', GUEST],
  ['oidc', oidcAt('http://127.0.0.1:1')],
])('with AUTH_MODE=%s nobody needs a users file', async (mode, environment) => {
  const checked = await runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', environment));
  expect(checked.of('users')).toEqual([]);
  expect(checked.code).toBe(1);
  expect(checked.of('configuration')[0]).toBe(`ok good; AUTH_MODE=${mode}, 1 bot in BOTS`);
  const password = await runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', NO_USERS));
  expect([password.code, password.of('users').length]).toEqual([78, 1]);
});

describe('a relay for guests', () => {
  test('is good from the sign-in of a guest to the sign-out', async () => {
    const checked = await checkThrough({ environment: GUEST });
    expect(problemsOf(checked)).toEqual([]);
    expect([checked.code, checked.messages]).toEqual([0, 2]);
    expect(checked.progress).toMatch(/^Sending up to 2 messages/);
    expect(checked.of('sign-in')).toEqual(['ok a guest is signed in']);
    expect(checked.of('cookie')).toEqual(['ok bot_relay_session, HttpOnly, SameSite=strict']);
    expect(checked.of('session')).toEqual(['ok known on 5 of 5 new connections']);
    expect(checked.of('headers')).toEqual(['ok as they should be', 'ok as they should be']);
    expect(checked.of('sign-out')).toEqual(['ok the session is over']);
    const logouts = relay?.logs.filter(({ route }) => route === '/auth/logout');
    expect(logouts).toEqual([
      expect.objectContaining({ status: 204, userId: expect.stringMatching(/^guest:/) }),
    ]);
  });

  test('needs no name and asks for no password: says so', async () => {
    const checked = await checkThrough({ environment: GUEST, args: ['--user', 'ada', '--no-messages'] });
    expect([checked.code, checked.messages]).toEqual([0, 0]);
    expect(checked.of('sign-in')).toEqual([
      'note --user is not used: with AUTH_MODE=guest visitors need no name',
      'ok a guest is signed in',
    ]);
  });

  test('may have had enough guests from here', async () => {
    const environment = { ...GUEST, GUESTS_PER_ADDRESS: '1' };
    const full = await checkThrough({ environment, args: ['--no-messages'] });
    expect(full.code).toBe(0);
    const args = ['--no-messages', '--through', front?.url as string];
    const more = { BOTS: 'demo/echo', PUBLIC_URL: front?.url as string, ...environment };
    const checked = await runCheck(args, checkEnvironment(service?.url as URL, more));
    expect(checked.of('sign-in')).toEqual(['problem answered with 429 too_many_attempts']);
    expect(adviceOf(checked, 'sign-in')).toEqual([expect.stringContaining('GUESTS_PER_ADDRESS')]);
  });

  test('may run with another AUTH_MODE than this one', async () => {
    const checked = await checkThrough({ environment: {}, differs: GUEST });
    expect(checked.of('sign-in')).toEqual(['problem answered with 404 not_found']);
    expect(adviceOf(checked, 'sign-in')).toEqual([
      'The relay has no /auth/guest: look at its AUTH_MODE and BASE_PATH.',
    ]);
  });
});

describe('the identity provider', () => {
  test('answers in a row with its host and the time it took', async () => {
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
    ['is not there', (_req, res) => res.writeHead(404).end(), 'HTTP_404', 'well-known'],
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
    ['hangs up', (req) => req.socket.destroy(), 'UND_ERR_SOCKET', 'hung up'],
    ['never answers', () => {}, 'OAUTH_TIMEOUT', 'firewalls'],
  ])(
    'that %s is a problem',
    async (_what, listener, code, advice) => {
      const issuer = await startBroken(listener);
      const environment = checkEnvironment('http://127.0.0.1:9', oidcAt(issuer));
      const checked = await runCheck(['--no-messages'], environment);
      expect(checked.of('identity provider')).toEqual([
        `problem its discovery document cannot be had (${code})`,
      ]);
      expect(adviceOf(checked, 'identity provider')).toEqual([expect.stringContaining(advice)]);
      expect(checked.code).toBe(1);
    },
    20_000,
  );

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

  test('that names no place to sign in, or no keys, is none', async () => {
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
  /** Checks against a provider that answers at its token endpoint with `listener`, and has `metadata` besides. */
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
    ['is refused in another word', refusing(401, 'invalid_request'), 'invalid_request'],
    ['is refused with 401 alone', (_req, res) => res.writeHead(401).end(), 'HTTP_401'],
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
    ['is met by a fault', (_req, res) => res.writeHead(500).end(), 'HTTP_500'],
    ['is told something else', refusing(400, 'invalid_request'), 'invalid_request'],
    ['is told what is no word', refusing(400, `x ${CANARY.key}`), 'other'],
    ['is hung up on', (req) => req.socket.destroy(), 'UND_ERR_SOCKET'],
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

  test('is asked for as the relay asks', async () => {
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
    ['not all', { scopes_supported: ['openid'] }, ['note the provider does not name profile']],
    [
      'no openid among',
      { scopes_supported: ['email'] },
      ['problem the provider does not name openid, profile'],
    ],
    ['nothing of', {}, []],
    ['no list of', { scopes_supported: 'openid' }, []],
  ])('asks for scopes: the metadata name %s them', async (_what, metadata, rows) => {
    const checked = await checkAnswer(good, metadata);
    expect(checked.of('scopes')).toEqual(rows);
    for (const advice of adviceOf(checked, 'scopes')) expect(advice).toMatch(/^Look at OIDC_/);
  });

  test.each<[string, object, RegExp[]]>([
    ['both ways', {}, []],
    ['there', { end_session_endpoint: undefined }, [/^note .*end_session_endpoint/]],
    ['from there', { backchannel_logout_supported: undefined }, [/^note .*back-channel logout/]],
    [
      'in no way',
      { backchannel_logout_supported: false, end_session_endpoint: undefined },
      [/^note .*end_session_endpoint/, /^note .*back-channel logout/],
    ],
  ])('has users signed out %s, or the check says that it has not', async (_what, metadata, rows) => {
    const checked = await checkAnswer(good, metadata);
    expect(checked.of('logout')).toEqual(rows.map((row) => expect.stringMatching(row)));
  });
});

const NOBODY = 'note nobody was signed in, for that takes a browser: session and message are left out';

describe('a relay whose users sign in at an identity provider', () => {
  test.each(['', '/chat-api'])(
    'is good as far as one gets without a browser, with the base path "%s"',
    async (base) => {
      const checked = await checkAtProvider({ environment: base ? { BASE_PATH: base } : {} });
      expect(problemsOf(checked)).toEqual([]);
      expect([checked.code, checked.messages]).toEqual([0, 1]);
      expect(checked.progress).toMatch(/^Sending up to 1 message,/);
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

  test('does not need --user, nor a password: says so', async () => {
    const checked = await checkAtProvider({ args: ['--user', 'ada', '--no-messages'] });
    expect(checked.code).toBe(0);
    expect(checked.of('sign-in')[0]).toBe(
      'note --user is not used: with AUTH_MODE=oidc users sign in at the identity provider',
    );
  });

  test('sends browsers to where they cannot come back from: is found out', async () => {
    const elsewhere = { PUBLIC_URL: 'http://127.0.0.1:8080' };
    front = await startFront();
    provider = await startIdentityProvider(front.url);
    const environment = { ...oidcAt(provider.issuer), ...elsewhere };
    const checked = await checkThrough({ environment, differs: { PUBLIC_URL: front.url } });
    expect(checked.of('sign-in')).toEqual([
      `problem leads back to http://127.0.0.1:8080/auth/callback, and not to ${front.url}/auth/callback`,
      NOBODY,
    ]);
    expect(checked.code).toBe(1);
  });

  test('sends them to another provider, as another client: is found out', async () => {
    front = await startFront();
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

  test('does not get through to the provider: is found out', async () => {
    front = await startFront();
    provider = await startIdentityProvider(front.url);
    const environment = oidcAt('http://127.0.0.1:2');
    const checked = await checkThrough({ environment, differs: { OIDC_ISSUER: provider.issuer } });
    expect(checked.of('sign-in')).toEqual([
      'problem answered with 503 identity_provider_unavailable',
      NOBODY,
    ]);
    expect(adviceOf(checked, 'sign-in')[0]).toMatch(/does not get through to the identity provider/);
  });

  test('runs with another AUTH_MODE than this one: is found out', async () => {
    front = await startFront();
    provider = await startIdentityProvider(front.url);
    const checked = await checkThrough({ environment: {}, differs: oidcAt(provider.issuer) });
    expect(checked.of('sign-in')).toEqual(['problem answered with 405 method_not_allowed', NOBODY]);
    expect(adviceOf(checked, 'sign-in')[0]).toMatch(/AUTH_MODE/);
  });

  test('is behind a load balancer that loses cookies, or the way back: is found out', async () => {
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

  test('is behind a load balancer that rewrites cookies and headers: is found out', async () => {
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
