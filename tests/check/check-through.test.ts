import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startBotService } from '../../src/service/bot-service.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import {
  type FakeLoadBalancerOptions,
  type Identity,
  selfSigned,
  startFakeLoadBalancer,
} from '../harness/faults/fake-load-balancer.ts';
import {
  adviceOn,
  checkEnvironment,
  type ExpectedRows,
  expectRows,
  problemsOf,
  runCheck,
} from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY, startRelay, USER } from '../harness/relay/relay.ts';

let identity: Identity;
let trustedBefore: readonly string[];
beforeAll(() => {
  identity = selfSigned();
  trustedBefore = tls.getCACertificates('default');
  tls.setDefaultCACertificates([identity.cert]);
});
afterAll(async () => {
  tls.setDefaultCACertificates(trustedBefore);
  await stopProcesses();
});

const AS_USER = ['--user', USER.name];
/** The bot repeats the text, with a pause before each word. */
const BRIEF = ['--text', 'Hi'];

interface Setup extends Omit<FakeLoadBalancerOptions, 'identity'> {
  /** Whether the load balancer ends TLS. */
  readonly isTls?: boolean;
  readonly args?: readonly string[];
  /** Environment of relay and check, and of the check alone. */
  readonly more?: Record<string, string>;
  readonly differs?: Record<string, string>;
}

/** Runs the check through a load balancer, against a relay and the demo's bot service, which it closes. */
async function check({ args = [...AS_USER, ...BRIEF], differs, more, isTls, ...options }: Setup = {}) {
  const speed = { wordMs: 40, silenceMs: 800 };
  const service = await startBotService({ keys: [CANARY.key], limit: 100, speed });
  const front = await startFakeLoadBalancer({ ...options, ...(isTls && { identity }) });
  const environment = { BOTS: 'demo/echo', PUBLIC_URL: front.url, ...more };
  const relay = await startRelay(service.url, environment);
  front.forwardTo(relay.port);
  try {
    const own = { ...environment, CHECK_PASSWORD: CANARY.password, ...differs };
    const checked = await runCheck(['--through', front.url, ...args], checkEnvironment(service.url, own));
    return { ...checked, logs: relay.logs };
  } finally {
    await relay.close();
    await front.close();
    await service.close();
  }
}

interface Case extends Setup {
  readonly rows: ExpectedRows;
  /** The checks that are problems, if they are not those of `rows`. */
  readonly problems?: readonly string[];
  /** The advice on the first of the problems, or of `rows`. */
  readonly advice?: RegExp;
  readonly messages?: number;
}

/** A case of `testSideBySide`. */
function finds(what: string, { rows, problems, advice, messages, ...setup }: Case) {
  const run = async () => {
    const checked = await check(setup);
    expectRows(checked, rows);
    if (problems) expect(problemsOf(checked)).toEqual(problems);
    expect(checked.code).toBe(problemsOf(checked).length > 0 ? 1 : 0);
    if (advice) expect(adviceOn(checked, problems?.[0] ?? (Object.keys(rows)[0] as string))).toMatch(advice);
    if (messages !== undefined) expect(checked.messages).toBe(messages);
  };
  return [what, run] as const;
}

describe('the path through a correct load balancer', () => {
  testSideBySide([
    [
      'has no problem from the certificate to the sign-out, and no session is left',
      async () => {
        const checked = await check({ isTls: true, args: AS_USER });
        expect([checked.code, checked.messages, problemsOf(checked)]).toEqual([0, 3, []]);
        expectRows(checked, {
          'public address': ['ok is PUBLIC_URL'],
          TLS: [
            /^ok connected to 127\.0\.0\.1 in \d+ ms, TLSv1\.3; certificate of front\.test by front\.test, valid until \d{4}-\d\d-\d\d \((89|90) days\)$/,
          ],
          'not signed in': ['ok a message is refused with 401, as problem+json'],
          cookie: ['ok __Host-bot_relay_session, HttpOnly, SameSite=strict, Secure'],
          session: ['ok known on 5 of 5 new connections'],
          headers: ['ok as they should be', 'ok as they should be'],
          arrival: [/not buffered$/, /not buffered$/],
          heartbeat: [/^note not seen in this answer/],
          'client address': ['ok an X-Forwarded-For of its own is not believed; this machine is 127.0.0.1'],
          'sent again': ['note a POST came once: a 500, a 502, a 504, a cut connection'],
          'sign-out': ['ok the session is over'],
        });
        expect(adviceOn(checked, 'sent again')).toMatch(/^Without REDIS_URL only one instance/);
        const logouts = checked.logs.filter(({ route }) => route === '/auth/logout');
        expect(logouts).toEqual([expect.objectContaining({ status: 204, userId: USER.name })]);
      },
    ],
    finds('shows heartbeats if the bot is silent for long enough', {
      more: { BOTS: 'demo/slow', HEARTBEAT_MS: '100' },
      ...{ problems: [], rows: { heartbeat: [/^ok seen \d+ of them/] } },
    }),
    finds('is checked without a message with --no-messages', {
      args: [...AS_USER, '--no-messages'],
      ...{ problems: [], messages: 0, rows: { message: [], 'sign-in': ['ok ada is signed in'] } },
    }),
    finds('is checked as far as possible without a sign-in', {
      args: BRIEF,
      ...{ problems: [], messages: 2, rows: { 'sign-in': [/^note not checked/] } },
    }),
    finds('leads to a relay with a base path', {
      more: { BASE_PATH: '/chat-api' },
      ...{ problems: [], rows: { 'sign-out': ['ok the session is over'] } },
    }),
  ]);
});

const answersWith =
  (status: number, headers: Record<string, string>): NonNullable<Setup['answer']> =>
  (_req, res) =>
    !!res.writeHead(status, headers).end('<h1>');

describe('a problem is a load balancer', () => {
  testSideBySide([
    finds('that buffers, by comparison with the answer direct from the service', {
      buffers: true,
      // It takes more than a second, however quick the machine is.
      args: [...AS_USER, '--text', 'word '.repeat(30)],
      problems: ['arrival'],
      rows: { arrival: [/^ok .*not buffered$/, /^problem .*in one moment: the load balancer buffers/] },
    }),
    finds('that holds heartbeats back', {
      more: { BOTS: 'demo/slow', HEARTBEAT_MS: '0' },
      differs: { HEARTBEAT_MS: '50' },
      ...{ problems: ['heartbeat'], rows: {} },
    }),
    finds('that compresses the stream', {
      buffers: true,
      tamper: (headers) => {
        if (/event-stream/.test(String(headers['content-type']))) headers['content-encoding'] = 'gzip';
      },
      rows: { headers: ['ok as they should be', 'problem the stream is compressed'] },
    }),
    finds('that rewrites the cookie', {
      isTls: true,
      tamper: (headers) => {
        const cookie = headers['set-cookie']?.[0]?.replace('; HttpOnly', '');
        if (cookie) headers['set-cookie'] = [cookie.replace('; Secure', '; Domain=example.com')];
      },
      rows: { cookie: ['problem it is not HttpOnly; it is not Secure; it has a Domain'] },
    }),
    finds("that shows the session's cookie in another header", {
      tamper: (headers, { url = '', headers: { cookie } }) => {
        if (cookie && url.includes('/message/sse')) headers['x-debug'] = cookie;
      },
      rows: { headers: ['ok as they should be', 'problem one of them holds a secret'] },
    }),
    finds('that loses the session, and no message is sent', {
      answer: (req) => {
        if (req.url === '/auth/session') delete req.headers.cookie;
        return false;
      },
      ...{ messages: 2, rows: { session: ['problem known on 0 of 5 new connections'], message: [] } },
    }),
    finds('that answers by itself', {
      answer: answersWith(502, { 'Content-Type': 'text/html', Server: 'front/1\u0085.2' }),
      problems: ['not signed in'],
      rows: { 'not signed in': [/it is 502 \(text\/html, from front\/1\?\.2\), not 401$/] },
    }),
    finds('that redirects, and the redirect is not followed', {
      answer: answersWith(301, { Location: 'https://elsewhere.example/' }),
      rows: { 'not signed in': [/it is 301 \(no type, a redirect\)/] },
    }),
    finds('that replaces Host, with ALLOWED_HOSTS', {
      more: { ALLOWED_HOSTS: 'internal.example' },
      answer: (req) => {
        req.headers.host = 'relays';
        return false;
      },
      rows: { 'not signed in': [/it is 421 unknown_host, not 401/] },
      advice: /pass Host on .*ALLOWED_HOSTS/,
    }),
  ]);

  test.each<[string, string, string | undefined, string]>([
    ['adds X-Powered-By', 'x-powered-by', 'thing', 'x-powered-by is there'],
    ['drops X-Request-Id', 'x-request-id', undefined, 'X-Request-Id is missing'],
    ['makes answers storable', 'cache-control', 'public', 'Cache-Control does not say no-'],
    ['shows the key', 'x-debug', CANARY.key, 'one of them holds a secret'],
  ])('that %s', async (_what, name, value, fault) => {
    const checked = await check({
      tamper(headers) {
        delete headers[name];
        if (value) headers[name] = value;
      },
    });
    const row = new RegExp(`^problem ${fault}`);
    expectRows(checked, { headers: [row, row] });
  });
});

describe('the check by probes', () => {
  testSideBySide([
    finds('proves nothing if the relay does not know the probes', {
      differs: { SESSION_SECRETS: '0123456789abcdef'.repeat(3) },
      rows: {
        'client address': [/^note neither .* was proven: the probe is answered with 404 not_found$/],
        'sent again': [],
      },
      ...{ problems: [] },
    }),
    finds('proves nothing if the load balancer does not forward the probes', {
      answer: (req, res) => /probe/.test(req.url ?? '') && !!res.writeHead(403).end('no'),
      rows: { 'client address': [/answered with 403 \(no type\)$/] },
      advice: /\/generic\//,
    }),
    finds('finds that all clients count as one with a TRUST_PROXY that is too low', {
      more: { TRUST_PROXY: '1' },
      answer: (req) => {
        req.headers['x-forwarded-for'] = `${req.headers['x-forwarded-for'] ?? ''}, 198.51.100.9, 10.0.0.1`;
        return false;
      },
      rows: {
        'client address': [
          'problem all clients count as one, 10.0.0.1: 2 proxies said who the client is, and TRUST_PROXY is 1',
        ],
      },
      advice: /^Set TRUST_PROXY to 2\.$/,
    }),
  ]);
});

describe('the running relay', () => {
  const SIGNED_OUT = ['ok the session is over'];
  testSideBySide([
    finds('may have another configuration than the check', {
      ...{ more: { BOTS: 'demo/guide' }, differs: { BOTS: 'demo/echo' } },
      rows: { message: ['problem answered with 404 unknown_bot'], 'sign-out': SIGNED_OUT },
    }),
    finds('may have other keys, of which a stream with an error event tells', {
      ...{ more: { UPSTREAM_API_KEYS: 'an-old-key' }, differs: { UPSTREAM_API_KEYS: CANARY.key } },
      rows: {
        message: ['problem answered with 502 upstream_key_rejected'],
        ...{ headers: ['ok as they should be'], 'sign-out': SIGNED_OUT },
      },
      advice: /^The running relay has other keys/,
    }),
    finds('may have another public address than PUBLIC_URL', {
      differs: { PUBLIC_URL: 'http://chat.example.com' },
      rows: { 'public address': [/^problem PUBLIC_URL is http:\/\/chat\.example\.com, and this address is/] },
    }),
    [
      'refuses a wrong password, which is not shown',
      async () => {
        const checked = await check({ differs: { CHECK_PASSWORD: 'not this one' } });
        expectRows(checked, { 'sign-in': ['problem answered with 401 invalid_credentials'] });
        expect(JSON.stringify(checked)).not.toContain('not this one');
      },
    ],
  ]);
});
