import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import {
  type FakeLoadBalancer,
  type FakeLoadBalancerOptions,
  startFakeLoadBalancer,
} from '../harness/faults/fake-load-balancer.ts';
import {
  adviceOn,
  type Checked,
  checkEnvironment,
  expectRows,
  problemsOf,
  runCheck,
} from '../harness/relay/check.ts';
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
  unanswered = checkAlone(oidcAt(await listen(silent)));
});
afterAll(() => {
  silent.closeAllConnections();
  silent.close();
});

const NO_USERS = { USERS_FILE: '/no/such/users.json' };
const GUEST = { AUTH_MODE: 'guest', ...NO_USERS };
const oidcAt = (issuer: string) => ({
  ...{ AUTH_MODE: 'oidc', OIDC_ISSUER: issuer, ...NO_USERS },
  ...{ OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret },
});
const NOBODY = 'note nobody was signed in, since this needs a browser: session and message are not checked';

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
  provider = await startIdentityProvider(front.url + (environment.BASE_PATH ?? ''));
  return checkThrough({ ...setup, environment: { ...oidcAt(provider.issuer), ...environment } });
}

/** Runs the check without a relay and without a message. */
function checkAlone(environment: Record<string, string>): Promise<Checked> {
  return runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', environment));
}

async function listen(server: Server): Promise<string> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Starts a provider that answers with `listener`. */
function startBroken(listener: RequestListener): Promise<string> {
  broken = createServer(listener);
  return listen(broken);
}

const json =
  (document: object, status = 200): RequestListener =>
  (_req, res) =>
    void res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(document));

function expectNoDocument(checked: Checked, code: string, advice: string): void {
  expect(checked.of('identity provider')).toEqual([
    expect.stringMatching(`^problem its discovery document cannot be had \\(${code}\\)$`),
  ]);
  expect(adviceOn(checked, 'identity provider')).toContain(advice);
  expect(checked.code).toBe(1);
}

test.each([
  ['guest', GUEST],
  ['oidc', oidcAt('http://127.0.0.1:1')],
])('with AUTH_MODE=%s no users file is needed', async (mode, environment) => {
  const checked = await checkAlone(environment);
  expect([checked.code, checked.of('users')]).toEqual([1, []]);
  expect(checked.of('configuration')[0]).toBe(`ok good; AUTH_MODE=${mode}, 1 bot in BOTS`);
  const password = await checkAlone(NO_USERS);
  expect([password.code, password.of('users').length]).toEqual([78, 1]);
});

describe('a relay for guests', () => {
  test('has no problem from the sign-in of a guest to the sign-out', async () => {
    // The second guest must ask during the run of the first.
    const args = ['--text', 'Hi '.repeat(25)];
    const checked = await checkThrough({ environment: GUEST, args });
    expect(problemsOf(checked)).toEqual([]);
    expect([checked.code, checked.messages]).toEqual([0, 3]);
    expectRows(checked, {
      'sign-in': ['ok a guest is signed in'],
      cookie: ['ok bot_relay_session, HttpOnly, SameSite=strict'],
      'sign-out': ['ok the session is over'],
      'users apart': [/^ok a second user /],
    });
    // No session is left: that of the second guest, who is there to get nothing of the first, neither.
    const logouts = relay?.logs.filter(({ route, status }) => route === '/auth/logout' && status === 204);
    expect(new Set(logouts?.map(({ userId }) => userId)).size).toBe(2);
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
    expect(adviceOn(checked, 'sign-in')).toContain('GUESTS_PER_ADDRESS');
  });

  test('may run with another AUTH_MODE than the check', async () => {
    const checked = await checkThrough({ environment: {}, differs: GUEST });
    expect(checked.of('sign-in')).toEqual(['problem answered with 404 not_found']);
    expect(adviceOn(checked, 'sign-in')).toBe(
      'The relay has no /auth/guest: look at its AUTH_MODE and BASE_PATH.',
    );
  });
});

describe('the identity provider', () => {
  test.each<[string, RequestListener, string, string]>([
    ['has no document', (_req, res) => res.writeHead(404).end(), 'HTTP_404', 'well-known'],
    ['fails', (_req, res) => res.writeHead(502).end(), 'HTTP_502', 'fails'],
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
    expectNoDocument(await checkAlone(oidcAt(await startBroken(listener))), code, advice);
  });

  test.each([
    ['has no name', 'https://no-such-name.invalid', '(ENOTFOUND|EAI_AGAIN)', 'DNS'],
    ['does not listen', 'http://127.0.0.1:2', 'ECONNREFUSED', 'Nothing listens'],
  ])('that %s is a problem', async (_what, issuer, code, advice) => {
    expectNoDocument(await checkAlone(oidcAt(issuer)), code, advice);
  });
});

describe('the client at the identity provider', () => {
  /** Runs the check against a provider with `metadata` whose token endpoint answers with `listener`. */
  async function checkAnswer(listener: RequestListener, metadata: object = {}) {
    const document: Record<string, unknown> = {};
    const issuer = await startBroken((req, res) => {
      if (req.url === '/token') listener(req, res);
      else json(document)(req, res);
    });
    Object.assign(document, {
      ...{ issuer, authorization_endpoint: `${issuer}/authorize`, token_endpoint: `${issuer}/token` },
      ...{ jwks_uri: `${issuer}/keys`, end_session_endpoint: `${issuer}/end` },
      ...{ backchannel_logout_supported: true, ...metadata },
    });
    return checkAlone(oidcAt(issuer));
  }

  test.each([
    [
      'with the right id and secret is known',
      {},
      'ok its id and secret are right: the provider refuses a made-up code alone (invalid_grant)',
    ],
    [
      'with a wrong secret is a problem',
      { OIDC_CLIENT_SECRET: `${CLIENT.secret}-not` },
      'problem the provider does not accept it (invalid_client)',
    ],
    [
      'with a wrong id is a problem',
      { OIDC_CLIENT_ID: 'another' },
      'problem the provider does not accept it (invalid_client)',
    ],
  ])('%s', async (_what, environment, row) => {
    provider = await startIdentityProvider('http://127.0.0.1:3000');
    const checked = await checkAlone({ ...oidcAt(provider.issuer), ...environment });
    expect(checked.of('client')).toEqual([row]);
    expect(adviceOn(checked, 'client') ?? '').toMatch(
      row.startsWith('ok') ? /^$/ : /OIDC_CLIENT_ID.*OIDC_CLIENT_SECRET/,
    );
    expect(provider?.asked.filter((path) => path === '/token')).toHaveLength(1);
    expect(JSON.stringify(checked)).not.toContain(CLIENT.secret);
  });

  test.each<[string, RequestListener, string]>([
    [
      'may not use codes is a problem',
      json({ error: 'unauthorized_client', error_description: CANARY.key }, 400),
      'problem the provider does not accept it (unauthorized_client)',
    ],
    [
      'gets a 500 is a note',
      (_req, res) => res.writeHead(500).end(),
      'note not proven: the answer to a made-up code was HTTP_500',
    ],
    [
      'is given tokens for nothing is a note',
      json({ access_token: CANARY.key, token_type: 'Bearer' }),
      'note not proven: the answer to a made-up code was tokens',
    ],
  ])('that %s', async (_what, listener, row) => {
    expect((await checkAnswer(listener)).of('client')).toEqual([row]);
  });

  const good = json({ error: 'invalid_grant' }, 400);
  test.each<[string, object, string[]]>([
    ['all', { scopes_supported: ['profile', 'email', 'openid'] }, ['ok the provider has all of OIDC_SCOPES']],
    ['not all of', { scopes_supported: ['openid'] }, ['note the provider does not name profile']],
    [
      'no openid among',
      { scopes_supported: ['email'] },
      ['problem the provider does not name openid, profile'],
    ],
    ['nothing of', {}, []],
  ])('asks for scopes, of which the metadata name %s', async (_what, metadata, rows) => {
    const checked = await checkAnswer(good, metadata);
    expect(checked.of('scopes')).toEqual(rows);
    expect(checked.of('logout')).toEqual([]);
  });

  test('that cannot sign users out both ways is noted', async () => {
    const metadata = { backchannel_logout_supported: false, end_session_endpoint: undefined };
    expect((await checkAnswer(good, metadata)).of('logout')).toEqual([
      expect.stringMatching(/^note .*end_session_endpoint/),
      expect.stringMatching(/^note .*back-channel logout/),
    ]);
  });
});

describe('a relay whose users sign in at an identity provider', () => {
  test.each(['', '/chat-api'])(
    'is good as far as one gets without a browser, with the base path "%s"',
    async (base) => {
      const checked = await checkAtProvider({ environment: base ? { BASE_PATH: base } : {} });
      expect(problemsOf(checked)).toEqual([]);
      expect([checked.code, checked.messages]).toEqual([0, 2]);
      expect(checked.progress).toMatch(/^Sending up to 2 messages,/);
      const host = new URL(provider?.issuer as string).host;
      expect(checked.rows.find(({ check }) => check === 'identity provider')).toMatchObject({
        ...{ state: 'ok', about: host, measured: { discoveryMs: expect.any(Number) } },
        says: expect.stringMatching(/^its discovery document came in \d+ ms$/),
      });
      expectRows(checked, {
        headers: ['ok as they should be'],
        cookie: ['ok of the sign-in: HttpOnly, SameSite=lax'],
        'sign-in': [`ok leads to ${host}, and back to ${front?.url}${base}/auth/callback`, NOBODY],
        callback: ['ok without a sign-in is refused by the relay'],
      });
      expect(adviceOn(checked, 'sign-in')).toBe(`Open ${front?.url}${base}/auth/login in a browser.`);
      expect(JSON.stringify(checked)).not.toContain(CLIENT.secret);
    },
  );

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

  test.each([
    [
      'has another address',
      { PUBLIC_URL: 'http://127.0.0.1:8080' },
      /^problem leads back to http:\/\/127\.0\.0\.1:8080\S+, and not to/,
      /another PUBLIC_URL/,
    ],
    [
      'cannot reach the provider',
      { OIDC_ISSUER: 'http://127.0.0.1:2' },
      /^problem .* 503 identity_provider_unavailable$/,
      /does not get through/,
    ],
    [
      'runs with another AUTH_MODE',
      { AUTH_MODE: 'password' },
      /^problem answered with 405 method_not_allowed$/,
      /AUTH_MODE/,
    ],
  ])('is a problem if it %s', async (_what, ofRelay: Record<string, string>, row, advice) => {
    front = await startFakeLoadBalancer();
    provider = await startIdentityProvider(front.url);
    const ofCheck = { PUBLIC_URL: front.url, ...oidcAt(provider.issuer) };
    const environment = ofRelay.AUTH_MODE === 'password' ? {} : { ...ofCheck, ...ofRelay };
    const checked = await checkThrough({ environment, differs: ofCheck });
    expect(checked.of('sign-in')).toEqual([expect.stringMatching(row), NOBODY]);
    expect(adviceOn(checked, 'sign-in')).toMatch(advice);
    expect(checked.code).toBe(1);
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
});

// The last test, since it has waited meanwhile.
test('an identity provider that never answers is a problem', async () => {
  expectNoDocument(await unanswered, 'OAUTH_TIMEOUT', 'firewalls');
});
