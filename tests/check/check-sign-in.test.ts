import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, expect } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import {
  adviceOn,
  type Checked,
  checkEnvironment,
  type ExpectedRows,
  expectRows,
  problemsOf,
  runCheck,
} from '../harness/relay/check.ts';
import { checkDeployment, type Deployment } from '../harness/relay/checked-deployment.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { CLIENT, startIdentityProvider } from '../harness/service/identity-provider.ts';

const closings: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closings) await close();
  await stopProcesses();
});

type Environment = Record<string, string>;
type Case = readonly [what: string, run: () => Promise<void>];

const NO_USERS = { USERS_FILE: '/no/such/users.json' };
const GUEST = { AUTH_MODE: 'guest', ...NO_USERS };
const oidcAt = (issuer: string) => ({
  ...{ AUTH_MODE: 'oidc', OIDC_ISSUER: issuer, ...NO_USERS },
  ...{ OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret },
});
const NOBODY = 'note nobody was signed in, since this needs a browser: session and message are not checked';

/** Runs the check without a relay and without a message. */
const checkAlone = (environment: Environment): Promise<Checked> =>
  runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', environment));

async function listen(listener: RequestListener): Promise<string> {
  const server: Server = createServer(listener);
  closings.push(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
/** Starts a real provider for a relay at `origin`. */
async function startProvider(origin: string) {
  const provider = await startIdentityProvider(origin);
  closings.push(provider.close);
  return provider;
}
/**
 * Checks a relay whose users sign in at a real provider. `differs` makes the variables that only the relay, or only the
 * check, has.
 */
async function checkAtProvider(
  { more, ...setup }: Deployment = {},
  differs: (oidc: Environment) => Pick<Deployment, 'ofRelay' | 'ofCheck'> = () => ({}),
) {
  let issuer = '';
  const checked = await checkDeployment({
    ...{ args: [], ...setup },
    async environments(origin) {
      ({ issuer } = await startProvider(origin + (more?.BASE_PATH ?? '')));
      const oidc = oidcAt(issuer);
      return { more: { ...oidc, ...more }, ...differs({ ...oidc, PUBLIC_URL: origin }) };
    },
  });
  return { ...checked, issuer };
}

const json =
  (document: object, status = 200): RequestListener =>
  (_req, res) =>
    void res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(document));

const GUESTS: readonly Case[] = [
  ...(
    [
      ['guest', GUEST],
      ['oidc', oidcAt('http://127.0.0.1:1')],
    ] as const
  ).map(
    ([mode, environment]): Case => [
      `with AUTH_MODE=${mode} no users file is needed`,
      async () => {
        const checked = await checkAlone(environment);
        expect([checked.code, checked.of('users')]).toEqual([1, []]);
        expect(checked.of('configuration')[0]).toBe(`ok good; AUTH_MODE=${mode}, 1 bot in BOTS`);
        const password = await checkAlone(NO_USERS);
        expect([password.code, password.of('users').length]).toEqual([78, 1]);
      },
    ],
  ),
  [
    'a relay for guests has no problem from the sign-in of a guest to the sign-out',
    async () => {
      // The second guest must ask during the run of the first.
      const checked = await checkDeployment({ args: [], text: 'Hi '.repeat(25), more: GUEST });
      expect(problemsOf(checked)).toEqual([]);
      expect([checked.code, checked.messages]).toEqual([0, 3]);
      expectRows(checked, {
        'sign-in': ['ok a guest is signed in'],
        cookie: ['ok bot_relay_session, HttpOnly, SameSite=strict'],
        'sign-out': ['ok the session is over'],
        'users apart': [/^ok a second user /],
      });
      // No session is left: that of the second guest, who is there to get nothing of the first, neither.
      const logouts = checked.logs.filter(({ route, status }) => route === '/auth/logout' && status === 204);
      expect(new Set(logouts.map(({ userId }) => userId)).size).toBe(2);
    },
  ],
  [
    'a relay for guests may refuse another guest from this address',
    async () => {
      const setup = { args: ['--no-messages'], more: { ...GUEST, GUESTS_PER_ADDRESS: '1' } };
      const first = await checkDeployment(setup);
      expect(first.code).toBe(0);
      expect(first.rows).toContainEqual(
        expect.objectContaining({ state: 'note', check: 'sign-in', about: 'second user' }),
      );
      const before = ({ url }: { url: string }) => fetch(`${url}/auth/guest`, { method: 'POST' });
      const next = await checkDeployment({ ...setup, before });
      expect(next.of('sign-in')).toEqual(['problem answered with 429 too_many_attempts']);
      expect(adviceOn(next, 'sign-in')).toContain('GUESTS_PER_ADDRESS');
    },
  ],
  [
    'a relay may run with another AUTH_MODE than the check',
    async () => {
      const checked = await checkDeployment({ args: [], ofCheck: GUEST });
      expect(checked.of('sign-in')).toEqual(['problem answered with 404 not_found']);
      expect(adviceOn(checked, 'sign-in')).toBe(
        'The relay has no /auth/guest: look at its AUTH_MODE and BASE_PATH.',
      );
    },
  ],
];

const NO_DOCUMENT: readonly (readonly [
  what: string,
  provider: string | RequestListener,
  code: string,
  advice: string,
])[] = [
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
  ['has no name', 'https://no-such-name.invalid', '(ENOTFOUND|EAI_AGAIN)', 'DNS'],
  ['does not listen', 'http://127.0.0.1:2', 'ECONNREFUSED', 'Nothing listens'],
  ['never answers', () => {}, 'OAUTH_TIMEOUT', 'firewalls'],
];

/** Checks a provider with `metadata` whose token endpoint answers with `listener`. */
async function checkAnswer(listener: RequestListener, metadata: object = {}) {
  const document: Record<string, unknown> = {};
  const issuer = await listen((req, res) => {
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
/** Of a provider that answers so, the check finds these rows. */
const answers = (what: string, listener: RequestListener, metadata: object, rows: ExpectedRows): Case => [
  what,
  async () => expectRows(await checkAnswer(listener, metadata), rows),
];
const REFUSED = 'problem the provider does not accept it (invalid_client)';
const good = json({ error: 'invalid_grant' }, 400);

const PROVIDERS: readonly Case[] = [
  ...NO_DOCUMENT.map(
    ([what, provider, code, advice]): Case => [
      `an identity provider that ${what} is a problem`,
      async () => {
        const issuer = typeof provider === 'string' ? provider : await listen(provider);
        const checked = await checkAlone(oidcAt(issuer));
        expect(checked.of('identity provider')).toEqual([
          expect.stringMatching(`^problem its discovery document cannot be had \\(${code}\\)$`),
        ]);
        expect(adviceOn(checked, 'identity provider')).toContain(advice);
        expect(checked.code).toBe(1);
      },
    ],
  ),
  ...(
    [
      [
        'with the right id and secret is known',
        {},
        'ok its id and secret are right: the provider refuses a made-up code alone (invalid_grant)',
      ],
      ['with a wrong secret is a problem', { OIDC_CLIENT_SECRET: `${CLIENT.secret}-not` }, REFUSED],
      ['with a wrong id is a problem', { OIDC_CLIENT_ID: 'another' }, REFUSED],
    ] as const
  ).map(
    ([what, environment, row]): Case => [
      `a client ${what}`,
      async () => {
        const provider = await startProvider('http://127.0.0.1:3000');
        const checked = await checkAlone({ ...oidcAt(provider.issuer), ...environment });
        expect(checked.of('client')).toEqual([row]);
        expect(adviceOn(checked, 'client') ?? '').toMatch(
          row.startsWith('ok') ? /^$/ : /OIDC_CLIENT_ID.*OIDC_CLIENT_SECRET/,
        );
        expect(provider.asked.filter((path) => path === '/token')).toHaveLength(1);
        expect(JSON.stringify(checked)).not.toContain(CLIENT.secret);
      },
    ],
  ),
  answers(
    'a client that may not use codes is a problem',
    json({ error: 'unauthorized_client', error_description: CANARY.key }, 400),
    {},
    { client: ['problem the provider does not accept it (unauthorized_client)'] },
  ),
  answers(
    'a client that gets a 500 is a note',
    (_req, res) => res.writeHead(500).end(),
    {},
    { client: ['note not proven: the answer to a made-up code was HTTP_500'] },
  ),
  answers(
    'a client that is given tokens for nothing is a note',
    json({ access_token: CANARY.key, token_type: 'Bearer' }),
    {},
    { client: ['note not proven: the answer to a made-up code was tokens'] },
  ),
  answers(
    'a client secret that the provider repeats is not shown',
    json({ error: CLIENT.secret }, 400),
    {},
    { client: ['note not proven: the answer to a made-up code was other'] },
  ),
  answers(
    'scopes that the metadata name are good',
    good,
    { scopes_supported: ['profile', 'email', 'openid'] },
    { scopes: ['ok the provider has all of OIDC_SCOPES'], logout: [] },
  ),
  answers(
    'scopes that the metadata do not name are noted',
    good,
    { scopes_supported: ['openid'] },
    { scopes: ['note the provider does not name profile'] },
  ),
  answers(
    'scopes without openid are a problem',
    good,
    { scopes_supported: ['email'] },
    { scopes: ['problem the provider does not name openid, profile'] },
  ),
  answers(
    'scopes that no metadata name are left out, and a provider that cannot sign users out both ways is noted',
    good,
    { backchannel_logout_supported: false, end_session_endpoint: undefined },
    {
      scopes: [],
      logout: [/^note .*end_session_endpoint/, /^note .*back-channel logout/],
    },
  ),
];

const AT_PROVIDER: readonly Case[] = [
  ...['', '/chat-api'].map(
    (base): Case => [
      `is good as far as one gets without a browser, with the base path "${base}"`,
      async () => {
        const checked = await checkAtProvider({ more: base ? { BASE_PATH: base } : {} });
        expect(problemsOf(checked)).toEqual([]);
        expect([checked.code, checked.messages]).toEqual([0, 2]);
        expect(checked.progress).toMatch(/^Sending up to 2 messages,/);
        const { host } = new URL(checked.issuer);
        expect(checked.rows.find(({ check }) => check === 'identity provider')).toMatchObject({
          ...{ state: 'ok', about: host, measured: { discoveryMs: expect.any(Number) } },
          says: expect.stringMatching(/^its discovery document came in \d+ ms$/),
        });
        expectRows(checked, {
          headers: ['ok as they should be'],
          cookie: ['ok of the sign-in: HttpOnly, SameSite=lax'],
          'sign-in': [`ok leads to ${host}, and back to ${checked.origin}${base}/auth/callback`, NOBODY],
          callback: ['ok without a sign-in is refused by the relay'],
        });
        expect(adviceOn(checked, 'sign-in')).toBe(`Open ${checked.origin}${base}/auth/login in a browser.`);
        expect(JSON.stringify(checked)).not.toContain(CLIENT.secret);
      },
    ],
  ),
  [
    'is a problem if it sends them to another provider, as another client',
    async () => {
      const { issuer } = await startProvider('http://127.0.0.1:3000');
      const checked = await checkAtProvider({}, () => ({
        ofCheck: { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: 'another' },
      }));
      expect(checked.of('sign-in')[0]).toBe(
        `problem leads to ${checked.issuer}/auth, and not to ${issuer}/auth; names another OIDC_CLIENT_ID`,
      );
    },
  ],
  ...(
    [
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
        { AUTH_MODE: 'password', OIDC_ISSUER: '', OIDC_CLIENT_ID: '', OIDC_CLIENT_SECRET: '' },
        /^problem answered with 405 method_not_allowed$/,
        /AUTH_MODE/,
      ],
    ] as const
  ).map(
    ([what, ofRelay, row, advice]): Case => [
      `is a problem if it ${what}`,
      async () => {
        const checked = await checkAtProvider({}, (ofCheck) => ({ ofRelay, ofCheck }));
        expect(checked.of('sign-in')).toEqual([expect.stringMatching(row), NOBODY]);
        expect(adviceOn(checked, 'sign-in')).toMatch(advice);
        expect(checked.code).toBe(1);
      },
    ],
  ),
  [
    'is a problem behind a load balancer that drops cookies or the callback',
    async () => {
      const checked = await checkAtProvider({
        tamper: (headers) => delete headers['set-cookie'],
        answer: (req, res) => {
          if (!req.url?.startsWith('/auth/callback')) return false;
          res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>the page');
          return true;
        },
      });
      expect(checked.of('cookie')).toEqual(['problem none came for the sign-in']);
      expect(checked.of('callback')).toEqual(['problem answered with 200 (text/html)']);
      expect(problemsOf(checked)).toEqual(['cookie', 'callback']);
    },
  ],
  [
    'is a problem behind a load balancer that rewrites cookies and headers',
    async () => {
      const checked = await checkAtProvider({
        tamper: (headers) => {
          const [cookie] = headers['set-cookie'] ?? [];
          if (cookie) headers['set-cookie'] = [cookie.replace('; HttpOnly', '').replace('Lax', 'Strict')];
          if (headers.location) headers['cache-control'] = 'public';
        },
      });
      expect(checked.of('cookie')).toEqual([
        'problem of the sign-in: it is not HttpOnly; it is not SameSite=lax',
      ]);
      expect(checked.of('headers')).toEqual(['problem Cache-Control does not say no-store']);
    },
  ],
];

testSideBySide(
  [
    ...GUESTS,
    ...PROVIDERS,
    ...AT_PROVIDER.map(([what, run]): Case => [`a relay whose users sign in at a provider ${what}`, run]),
  ],
  8,
);
