import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startBotService } from '../../src/demo/bot-service.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import {
  type FakeLoadBalancerOptions,
  type Identity,
  selfSigned,
  startFakeLoadBalancer,
} from '../harness/faults/fake-load-balancer.ts';
import { type Checked, checkEnvironment, runCheck } from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

let identity: Identity;
let trustedBefore: readonly string[];
beforeAll(() => {
  identity = selfSigned();
  trustedBefore = tls.getCACertificates('default');
  tls.setDefaultCACertificates([identity.cert]);
});
afterAll(() => tls.setDefaultCACertificates(trustedBefore));

afterAll(() => stopProcesses());

const SIGN_IN = { CHECK_PASSWORD: CANARY.password };
const AS_USER = ['--user', USER.name];
/** The bot repeats the text, with a pause before each word. */
const BRIEF = ['--text', 'Hi'];

interface Setup extends FakeLoadBalancerOptions {
  readonly args?: readonly string[];
  /** Environment of the check alone. */
  readonly differs?: Record<string, string>;
  readonly more?: Record<string, string>;
}

/** Runs the check through a load balancer, against a relay and the demo's bot service, which it closes. */
async function check({
  args = [...AS_USER, ...BRIEF],
  differs,
  more,
  ...options
}: Setup = {}): Promise<Checked & { readonly logs: TestRelay['logs'] }> {
  const service = await startBotService({
    keys: [CANARY.key],
    limit: 100,
    speed: { wordMs: 40, silenceMs: 800 },
  });
  const front = await startFakeLoadBalancer(options);
  const environment = { BOTS: 'demo/echo', PUBLIC_URL: front.url, ...more };
  const relay = await startRelay(service.url, environment);
  front.forwardTo(relay.port);
  try {
    const checked = await runCheck(
      ['--through', front.url, ...args],
      checkEnvironment(service.url, { ...environment, ...SIGN_IN, ...differs }),
    );
    return { ...checked, logs: relay.logs };
  } finally {
    await relay.close();
    await front.close();
    await service.close();
  }
}

const problemsOf = ({ rows }: Checked) =>
  rows.filter(({ state }) => state === 'problem').map(({ check }) => check);

const adviceOn = ({ rows }: Checked, name: string) => rows.find(({ check }) => check === name)?.advice;

describe('the path through a correct load balancer', () => {
  testSideBySide([
    [
      'has no problem from the certificate to the sign-out, and no session is left',
      async () => {
        const checked = await check({ identity, args: AS_USER });
        expect(problemsOf(checked)).toEqual([]);
        expect([checked.code, checked.messages]).toEqual([0, 3]);
        expect(checked.of('public address')).toEqual(['ok is PUBLIC_URL']);
        expect(checked.of('TLS')).toEqual([
          expect.stringMatching(
            /^ok connected to 127\.0\.0\.1 in \d+ ms, TLSv1\.3; certificate of front\.test by front\.test, valid until \d{4}-\d\d-\d\d \((89|90) days\)$/,
          ),
        ]);
        expect(checked.of('not signed in')).toEqual(['ok a message is refused with 401, as problem+json']);
        expect(checked.of('cookie')).toEqual([
          'ok __Host-bot_relay_session, HttpOnly, SameSite=strict, Secure',
        ]);
        expect(checked.of('session')).toEqual(['ok known on 5 of 5 new connections']);
        expect(checked.of('headers')).toEqual(['ok as they should be', 'ok as they should be']);
        expect(checked.of('arrival')).toEqual([
          expect.stringMatching(/not buffered$/),
          expect.stringMatching(/not buffered$/),
        ]);
        expect(checked.of('heartbeat')).toEqual([expect.stringMatching(/^note not seen in this answer/)]);
        expect(checked.of('client address')).toEqual([
          'ok an X-Forwarded-For of its own is not believed; this machine is 127.0.0.1',
        ]);
        expect(checked.of('sent again')).toEqual([
          'note a POST came once: a 500, a 502, a 504, a cut connection',
        ]);
        expect(adviceOn(checked, 'sent again')).toMatch(/^Without REDIS_URL only one instance/);
        expect(checked.of('foreign host')).toEqual(['note a request for any name gets through to the relay']);
        expect(checked.of('sign-out')).toEqual(['ok the session is over']);
        const logouts = checked.logs.filter(({ route }) => route === '/auth/logout');
        expect(logouts).toEqual([expect.objectContaining({ status: 204, userId: USER.name })]);
      },
    ],
    [
      'shows heartbeats if the bot is silent for long enough',
      async () => {
        const checked = await check({ more: { BOTS: 'demo/slow', HEARTBEAT_MS: '100' } });
        expect(checked.of('heartbeat')).toEqual([expect.stringMatching(/^ok seen \d+ of them/)]);
        expect(checked.code).toBe(0);
      },
    ],
    [
      'is checked without a message with --no-messages',
      async () => {
        const checked = await check({ args: [...AS_USER, '--no-messages'] });
        expect([checked.code, checked.messages, checked.of('message')]).toEqual([0, 0, []]);
        expect(checked.of('sign-in')).toEqual(['ok ada is signed in']);
      },
    ],
    [
      'is checked as far as possible without a sign-in',
      async () => {
        const checked = await check({ args: BRIEF });
        expect([checked.code, checked.messages]).toEqual([0, 2]);
        expect(checked.of('sign-in')).toEqual([expect.stringMatching(/^note not checked/)]);
      },
    ],
    [
      'leads to a relay with a base path',
      async () => {
        const checked = await check({ more: { BASE_PATH: '/chat-api' } });
        expect([checked.code, problemsOf(checked)]).toEqual([0, []]);
      },
    ],
  ]);
});

describe('a load balancer', () => {
  testSideBySide([
    [
      'that buffers is a problem, by comparison with the answer direct from the service',
      async () => {
        // It takes more than a second, however quick the machine is.
        const args = [...AS_USER, '--text', 'word '.repeat(30)];
        const checked = await check({ buffers: true, args });
        expect([checked.code, problemsOf(checked)]).toEqual([1, ['arrival']]);
        expect(checked.of('arrival')).toEqual([
          expect.stringMatching(/^ok .*not buffered$/),
          expect.stringMatching(/^problem .*in one moment: the load balancer buffers/),
        ]);
      },
    ],
    [
      'that holds heartbeats back is a problem',
      async () => {
        const checked = await check({
          more: { BOTS: 'demo/slow', HEARTBEAT_MS: '0' },
          differs: { HEARTBEAT_MS: '50' },
        });
        expect(problemsOf(checked)).toEqual(['heartbeat']);
      },
    ],
    [
      'that compresses the stream is a problem',
      async () => {
        const checked = await check({
          buffers: true,
          tamper: (headers) => {
            if (/event-stream/.test(String(headers['content-type']))) headers['content-encoding'] = 'gzip';
          },
        });
        expect(checked.of('headers')).toEqual(['ok as they should be', 'problem the stream is compressed']);
      },
    ],
    [
      'that rewrites the cookie is a problem',
      async () => {
        const checked = await check({
          identity,
          tamper: (headers) => {
            const cookie = headers['set-cookie']?.[0];
            if (cookie)
              headers['set-cookie'] = [
                cookie.replace('; HttpOnly', '').replace('; Secure', '; Domain=example.com'),
              ];
          },
        });
        expect(checked.of('cookie')).toEqual([
          'problem it is not HttpOnly; it is not Secure; it has a Domain',
        ]);
      },
    ],
    [
      'that loses the session is a problem, and no message is sent',
      async () => {
        const checked = await check({
          answer: (req) => {
            if (req.url === '/auth/session') delete req.headers.cookie;
            return false;
          },
        });
        expect(checked.of('session')).toEqual(['problem known on 0 of 5 new connections']);
        expect([checked.of('message'), checked.messages]).toEqual([[], 2]);
      },
    ],
    [
      'that answers by itself is a problem',
      async () => {
        const checked = await check({
          answer: (_req, res) => {
            res
              .writeHead(502, { 'Content-Type': 'text/html', Server: 'front/1\u0085.2' })
              .end('<h1>Bad Gateway');
            return true;
          },
        });
        expect(problemsOf(checked)).toEqual(['not signed in']);
        expect(checked.of('not signed in')).toEqual([
          expect.stringMatching(/it is 502 \(text\/html, from front\/1\?\.2\), not 401$/),
        ]);
      },
    ],
    [
      'that redirects is a problem, and the redirect is not followed',
      async () => {
        const checked = await check({
          answer: (_req, res) => {
            res.writeHead(301, { Location: 'https://elsewhere.example/' }).end();
            return true;
          },
        });
        expect(checked.of('not signed in')).toEqual([
          expect.stringMatching(/it is 301 \(no type, a redirect\)/),
        ]);
      },
    ],
  ]);

  test.each<[string, FakeLoadBalancerOptions['tamper'], string]>([
    [
      'adds X-Powered-By',
      (headers) => Object.assign(headers, { 'x-powered-by': 'thing' }),
      'x-powered-by is there',
    ],
    ['drops X-Request-Id', (headers) => delete headers['x-request-id'], 'X-Request-Id is missing'],
    [
      'makes answers storable',
      (headers) => Object.assign(headers, { 'cache-control': 'public' }),
      'Cache-Control does not say no-',
    ],
    [
      'shows the key',
      (headers) => Object.assign(headers, { 'x-debug': CANARY.key }),
      'one of them holds a secret',
    ],
  ])('that %s is a problem', async (_what, tamper, fault) => {
    const checked = await check({ tamper: tamper as NonNullable<typeof tamper> });
    expect(checked.code).toBe(1);
    expect(checked.of('headers')).toEqual([
      expect.stringContaining(`problem ${fault}`),
      expect.stringContaining(`problem ${fault}`),
    ]);
  });
});

describe('a foreign host name', () => {
  testSideBySide([
    [
      'is refused by a relay with ALLOWED_HOSTS',
      async () => {
        const checked = await check({ identity, more: { ALLOWED_HOSTS: 'internal.example' } });
        expect(checked.of('foreign host')).toEqual(['ok the relay refuses it']);
        expect(checked.code).toBe(0);
      },
    ],
    [
      'is not refused if the load balancer replaces Host, and the check says so',
      async () => {
        const checked = await check({
          more: { ALLOWED_HOSTS: 'internal.example' },
          answer: (req) => {
            req.headers.host = 'relays';
            return false;
          },
        });
        expect(checked.of('not signed in')).toEqual([
          expect.stringMatching(/it is 421 unknown_host, not 401/),
        ]);
        expect(adviceOn(checked, 'not signed in')).toMatch(/pass Host on .*ALLOWED_HOSTS/);
      },
    ],
  ]);

  test.each<[string, FakeLoadBalancerOptions['answer']]>([
    ['refuses it', (_req, res) => !!res.writeHead(421).end()],
    ['closes the connection', (req) => !!req.socket.destroy()],
  ])('does not get through a load balancer that %s', async (_what, refuse) => {
    const checked = await check({
      answer: (req, res) => /invalid/.test(req.headers.host ?? '') && !!refuse?.(req, res),
    });
    expect(checked.of('foreign host')).toEqual(['ok does not get through to the relay']);
    expect(checked.code).toBe(0);
  });
});

describe('the check by probes', () => {
  testSideBySide([
    [
      'proves nothing if the relay does not know the probes',
      async () => {
        const checked = await check({ differs: { SESSION_SECRETS: '0123456789abcdef'.repeat(3) } });
        expect(checked.of('client address')).toEqual([
          expect.stringMatching(/^note neither .* was proven: the probe is answered with 404 not_found$/),
        ]);
        expect(adviceOn(checked, 'client address')).toMatch(/SESSION_SECRETS/);
        expect(checked.of('sent again')).toEqual([]);
        expect(checked.code).toBe(0);
      },
    ],
    [
      'proves nothing if the load balancer does not forward the probes',
      async () => {
        const checked = await check({
          answer: (req, res) => /probe/.test(req.url ?? '') && !!res.writeHead(403).end('no'),
        });
        expect(checked.of('client address')).toEqual([
          expect.stringMatching(/answered with 403 \(no type\)$/),
        ]);
        expect(adviceOn(checked, 'client address')).toMatch(/\/generic\//);
      },
    ],
    [
      'finds that all clients count as one with a TRUST_PROXY that is too low',
      async () => {
        const checked = await check({
          more: { TRUST_PROXY: '1' },
          answer: (req) => {
            req.headers['x-forwarded-for'] =
              `${req.headers['x-forwarded-for'] ?? ''}, 198.51.100.9, 10.0.0.1`;
            return false;
          },
        });
        expect(checked.of('client address')).toEqual([
          'problem all clients count as one, 10.0.0.1: 2 proxies said who the client is, and TRUST_PROXY is 1',
        ]);
        expect(adviceOn(checked, 'client address')).toBe('Set TRUST_PROXY to 2.');
      },
    ],
  ]);
});

describe('the running relay', () => {
  testSideBySide([
    [
      'may have another configuration than the check',
      async () => {
        const checked = await check({ more: { BOTS: 'demo/guide' }, differs: { BOTS: 'demo/echo' } });
        expect(checked.of('message')).toEqual(['problem answered with 404 unknown_bot']);
        expect(checked.of('sign-out')).toEqual(['ok the session is over']);
      },
    ],
    [
      'may have other keys, of which a stream with an error event tells',
      async () => {
        const checked = await check({
          differs: { UPSTREAM_API_KEYS: CANARY.key },
          more: { UPSTREAM_API_KEYS: 'an-old-key' },
        });
        expect(checked.of('message')).toEqual(['problem answered with 502 upstream_key_rejected']);
        expect(adviceOn(checked, 'message')).toMatch(/^The running relay has other keys/);
        expect(checked.of('headers')).toEqual(['ok as they should be']);
        expect(checked.of('sign-out')).toEqual(['ok the session is over']);
      },
    ],
    [
      'refuses a wrong password',
      async () => {
        const checked = await check({ differs: { CHECK_PASSWORD: 'not this one' } });
        expect(checked.of('sign-in')).toEqual(['problem answered with 401 invalid_credentials']);
        expect(JSON.stringify(checked)).not.toContain('not this one');
      },
    ],
    [
      'may have another public address than PUBLIC_URL',
      async () => {
        const checked = await check({ differs: { PUBLIC_URL: 'http://chat.example.com' } });
        expect(checked.of('public address')).toEqual([
          expect.stringMatching(/^problem PUBLIC_URL is http:\/\/chat\.example\.com, and this address is/),
        ]);
      },
    ],
  ]);
});
