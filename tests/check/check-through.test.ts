import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type Identity, selfSigned } from '../harness/faults/fake-load-balancer.ts';
import { adviceOn, type ExpectedRows, expectRows, problemsOf } from '../harness/relay/check.ts';
import { checkDeployment, type Deployment } from '../harness/relay/checked-deployment.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY, USER } from '../harness/relay/relay.ts';

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

interface Case extends Deployment {
  /** Whether the load balancer ends TLS. */
  readonly isTls?: boolean;
  readonly rows: ExpectedRows;
  /** The checks that are problems, if they are not those of `rows`. */
  readonly problems?: readonly string[];
  /** The advice on the first of the problems, or of `rows`. */
  readonly advice?: RegExp;
  readonly messages?: number;
}

/** A case of `testSideBySide`. */
function finds(what: string, { rows, problems, advice, messages, isTls, ...setup }: Case) {
  const run = async () => {
    const checked = await checkDeployment({ ...setup, ...(isTls && { identity }) });
    expectRows(checked, rows);
    if (problems) expect(problemsOf(checked)).toEqual(problems);
    expect(checked.code).toBe(problemsOf(checked).length > 0 ? 1 : 0);
    if (advice) expect(adviceOn(checked, problems?.[0] ?? (Object.keys(rows)[0] as string))).toMatch(advice);
    if (messages !== undefined) expect(checked.messages).toBe(messages);
  };
  return [what, run] as const;
}
const answersWith =
  (status: number, headers: Record<string, string>): NonNullable<Deployment['answer']> =>
  (_req, res) =>
    !!res.writeHead(status, headers).end('<h1>');
const SIGNED_OUT = ['ok the session is over'];
/** What the headers of every answer are found to be. */
const headersOf = (what: string, name: string, value: string | undefined, fault: string) =>
  finds(`a problem that it ${what}`, {
    tamper(headers) {
      delete headers[name];
      if (value) headers[name] = value;
    },
    rows: { headers: [new RegExp(`^problem ${fault}`), new RegExp(`^problem ${fault}`)] },
  });

describe('of a load balancer, the check finds', () => {
  testSideBySide(
    [
      [
        'no problem from the certificate to the sign-out, and no session is left',
        async () => {
          const text = 'one two three four five six seven eight nine ten eleven twelve';
          const checked = await checkDeployment({ identity, text });
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
            'sign-out': SIGNED_OUT,
          });
          expect(adviceOn(checked, 'sent again')).toMatch(/^Without REDIS_URL only one instance/);
          const logouts = checked.logs.filter(({ route }) => route === '/auth/logout');
          expect(logouts).toEqual([expect.objectContaining({ status: 204, userId: USER.name })]);
        },
      ],
      finds('heartbeats if the bot is silent for long enough', {
        more: { BOTS: 'demo/slow', HEARTBEAT_MS: '100' },
        ...{ problems: [], rows: { heartbeat: [/^ok seen \d+ of them/] } },
      }),
      finds('what it can without a message', {
        args: ['--user', USER.name, '--no-messages'],
        ...{ problems: [], messages: 0, rows: { message: [], 'sign-in': ['ok ada is signed in'] } },
      }),
      finds('what it can without a sign-in', {
        args: [],
        ...{ problems: [], messages: 2, rows: { 'sign-in': [/^note not checked/] } },
      }),
      finds('a relay with a base path', {
        more: { BASE_PATH: '/chat-api' },
        ...{ problems: [], rows: { 'sign-out': SIGNED_OUT } },
      }),
      finds('a problem that it buffers, by comparison with the answer direct from the service', {
        buffers: true,
        // It takes more than a second, however quick the machine is.
        text: 'word '.repeat(30),
        problems: ['arrival'],
        rows: { arrival: [/^ok .*not buffered$/, /^problem .*in one moment: the load balancer buffers/] },
      }),
      finds('a problem that it holds heartbeats back', {
        more: { BOTS: 'demo/slow', HEARTBEAT_MS: '0' },
        ofCheck: { HEARTBEAT_MS: '50' },
        ...{ problems: ['heartbeat'], rows: {} },
      }),
      finds('a problem that it compresses the stream', {
        buffers: true,
        tamper: (headers) => {
          if (/event-stream/.test(String(headers['content-type']))) headers['content-encoding'] = 'gzip';
        },
        rows: { headers: ['ok as they should be', 'problem the stream is compressed'] },
      }),
      finds('a problem that it rewrites the cookie', {
        isTls: true,
        tamper: (headers) => {
          const cookie = headers['set-cookie']?.[0]?.replace('; HttpOnly', '');
          if (cookie) headers['set-cookie'] = [cookie.replace('; Secure', '; Domain=example.com')];
        },
        rows: { cookie: ['problem it is not HttpOnly; it is not Secure; it has a Domain'] },
      }),
      finds("a problem that it shows the session's cookie in another header", {
        tamper: (headers, { url = '', headers: { cookie } }) => {
          if (cookie && url.includes('/message/sse')) headers['x-debug'] = cookie;
        },
        rows: { headers: ['ok as they should be', 'problem one of them holds a secret'] },
      }),
      finds('a problem that it loses the session, and no message is sent', {
        answer: (req) => {
          if (req.url === '/auth/session') delete req.headers.cookie;
          return false;
        },
        ...{ messages: 2, rows: { session: ['problem known on 0 of 5 new connections'], message: [] } },
      }),
      finds('a problem that it answers by itself', {
        answer: answersWith(502, { 'Content-Type': 'text/html', Server: 'front/1\u0085.2' }),
        problems: ['not signed in'],
        rows: { 'not signed in': [/it is 502 \(text\/html, from front\/1\?\.2\), not 401$/] },
      }),
      finds('a problem that it redirects, and the redirect is not followed', {
        answer: answersWith(301, { Location: 'https://elsewhere.example/' }),
        rows: { 'not signed in': [/it is 301 \(no type, a redirect\)/] },
      }),
      finds('a problem that it replaces Host, with ALLOWED_HOSTS', {
        more: { ALLOWED_HOSTS: 'internal.example' },
        answer: (req) => {
          req.headers.host = 'relays';
          return false;
        },
        rows: { 'not signed in': [/it is 421 unknown_host, not 401/] },
        advice: /pass Host on .*ALLOWED_HOSTS/,
      }),
      headersOf('adds X-Powered-By', 'x-powered-by', 'thing', 'x-powered-by is there'),
      headersOf('drops X-Request-Id', 'x-request-id', undefined, 'X-Request-Id is missing'),
      headersOf('makes answers storable', 'cache-control', 'public', 'Cache-Control does not say no-'),
      headersOf('shows the key', 'x-debug', CANARY.key, 'one of them holds a secret'),
      finds('nothing by probes that the relay does not know', {
        ofCheck: { SESSION_SECRETS: '0123456789abcdef'.repeat(3) },
        rows: {
          'client address': [/^note neither .* was proven: the probe is answered with 404 not_found$/],
          'sent again': [],
        },
        ...{ problems: [] },
      }),
      finds('nothing by probes that it does not forward', {
        answer: (req, res) => /probe/.test(req.url ?? '') && !!res.writeHead(403).end('no'),
        rows: { 'client address': [/answered with 403 \(no type\)$/] },
        advice: /\/generic\//,
      }),
      finds('a problem that all clients count as one with a TRUST_PROXY that is too low', {
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
      finds('a problem that the relay has another configuration than the check', {
        ...{ more: { BOTS: 'demo/guide' }, ofCheck: { BOTS: 'demo/echo' } },
        rows: { message: ['problem answered with 404 unknown_bot'], 'sign-out': SIGNED_OUT },
      }),
      finds('a problem that the relay has other keys, of which a stream with an error event tells', {
        ...{ more: { UPSTREAM_API_KEYS: 'an-old-key' }, ofCheck: { UPSTREAM_API_KEYS: CANARY.key } },
        rows: {
          message: ['problem answered with 502 upstream_key_rejected'],
          ...{ headers: ['ok as they should be'], 'sign-out': SIGNED_OUT },
        },
        advice: /^The running relay has other keys/,
      }),
      finds('a problem that it has another address than PUBLIC_URL', {
        ofCheck: { PUBLIC_URL: 'http://chat.example.com' },
        rows: {
          'public address': [/^problem PUBLIC_URL is http:\/\/chat\.example\.com, and this address is/],
        },
      }),
      [
        'a problem with a wrong password, which is not shown',
        async () => {
          const checked = await checkDeployment({ ofCheck: { CHECK_PASSWORD: 'not this one' } });
          expectRows(checked, { 'sign-in': ['problem answered with 401 invalid_credentials'] });
          expect(JSON.stringify(checked)).not.toContain('not this one');
        },
      ],
    ],
    8,
  );
});
