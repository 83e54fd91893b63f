import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startBotService } from '../../src/service/bot-service.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type Identity, selfSigned } from '../harness/faults/fake-load-balancer.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
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
import { describeWithNginx, startNginx } from '../harness/relay/deployed-load-balancers.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { describeThrough, type LoadBalancer, startLoadBalancer } from '../harness/relay/load-balancers.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

let identity: Identity;
let trustedBefore: readonly string[];
beforeAll(() => {
  identity = selfSigned();
  trustedBefore = tls.getCACertificates('default');
  tls.setDefaultCACertificates([identity.cert]);
});
afterAll(async () => {
  tls.setDefaultCACertificates(trustedBefore);
  await stopPrograms();
  stopRedis();
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

/** Shared by all relays behind real load balancers. */
let redis: RedisServer;

interface Configured {
  readonly lines?: string;
  readonly more?: Record<string, string>;
  /** The relays' ports. */
  readonly ports?: readonly [number, number];
}

/** Two relays that share a Redis, and the environment of the check. */
async function startRelays(origin: string, { more, ports = [0, 0] }: Configured) {
  const service = await startBotService({ keys: [CANARY.key], speed: { wordMs: 40 } });
  const shared = {
    BOTS: 'demo/echo',
    PUBLIC_URL: origin,
    TRUST_PROXY: '1',
    REDIS_URL: redis.url,
    ...more,
  };
  const start = (port: number) => startRelay(service.url, { ...shared, PORT: String(port) });
  const relays: [TestRelay, TestRelay] = [await start(ports[0]), await start(ports[1])];
  return {
    relays,
    environment: checkEnvironment(service.url, { ...shared, CHECK_PASSWORD: CANARY.password }),
    async close() {
      for (const relay of relays) await relay.close();
      await service.close();
    },
  };
}

/** Runs the check through a load balancer with these lines of configuration, in front of two relays. */
async function checkConfigured(name: LoadBalancer, setup: Configured): Promise<Checked> {
  const port = await freePort();
  const origin = `https://127.0.0.1:${port}`;
  const { relays, environment, close } = await startRelays(origin, setup);
  try {
    await startLoadBalancer(name, { ...setup, identity, port, relays: relays.map((relay) => relay.port) });
    return await runCheck(['--no-messages', '--through', origin, '--user', USER.name], environment);
  } finally {
    await close();
  }
}

/** Each sends to another relay only what was not sent. */
const GOOD: Readonly<Record<LoadBalancer, string>> = {
  nginx: `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_next_upstream error timeout http_500 http_502 http_503 http_504;`,
  haproxy: 'option forwardfor\n  option redispatch\n  retries 3\n  retry-on conn-failure 503',
  caddy: 'lb_try_duration 2s',
};

/** Configurations that let clients claim any address, and the advice for each. */
const BELIEVING: Readonly<Record<LoadBalancer, Readonly<Record<string, Configured & { advice: RegExp }>>>> = {
  nginx: {
    'passes X-Forwarded-For on': { advice: /^The load balancer passes the header on .*\$remote_addr/ },
    'extends X-Forwarded-For, with a TRUST_PROXY that is too high': {
      lines: 'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;',
      more: { TRUST_PROXY: '2' },
      advice: /^Set TRUST_PROXY to 1, /,
    },
  },
  haproxy: {
    'adds X-Forwarded-For only where there is none': {
      lines: 'option forwardfor if-none',
      advice: /^The load balancer passes the header on .*%\[src\]/,
    },
    'extends X-Forwarded-For, with networks in TRUST_PROXY in which the client is': {
      lines: 'option forwardfor',
      more: { TRUST_PROXY: '127.0.0.0/8,10.0.0.0/8' },
      advice: /^Take this machine's network out of TRUST_PROXY/,
    },
  },
  caddy: {
    'passes X-Forwarded-For on': {
      lines: 'header_up X-Forwarded-For {http.request.header.X-Forwarded-For}',
      advice: /^The load balancer passes the header on .*header_up/,
    },
    'trusts all clients as proxies, with a TRUST_PROXY that is too high': {
      lines: 'trusted_proxies 127.0.0.0/8',
      more: { TRUST_PROXY: '2' },
      advice: /^Set TRUST_PROXY to 1, /,
    },
  },
};

/** Configurations that send a POST again, and after which failures. */
const REPEATING: Readonly<Record<LoadBalancer, Readonly<Record<string, Configured & { after: string }>>>> = {
  nginx: {
    'non_idempotent after errors': {
      lines:
        'proxy_set_header X-Forwarded-For $remote_addr; proxy_next_upstream error timeout non_idempotent;',
      after: '2 times after a cut connection',
    },
    'non_idempotent after a status': {
      lines:
        'proxy_set_header X-Forwarded-For $remote_addr; proxy_next_upstream http_502 http_504 non_idempotent;',
      after: '2 times after a 502',
    },
  },
  haproxy: {
    'retry-on all-retryable-errors': {
      lines: 'option forwardfor\n  retries 3\n  retry-on all-retryable-errors',
      after: '2 times after a 500, 2 times after a 502, 2 times after a 504, 2 times after a cut connection',
    },
    'retry-on empty-response': {
      lines: 'option forwardfor\n  retries 3\n  retry-on conn-failure empty-response',
      after: '2 times after a cut connection',
    },
  },
  caddy: {
    'lb_retry_match of POST': {
      lines: 'lb_try_duration 2s\n    lb_retry_match method POST',
      after: '2 times after a cut connection',
    },
  },
};

async function expectGood(name: LoadBalancer): Promise<void> {
  const checked = await checkConfigured(name, { lines: GOOD[name] });
  expect(problemsOf(checked)).toEqual([]);
  expect(checked.code).toBe(0);
  expect(checked.of('client address')).toEqual([
    'ok an X-Forwarded-For of its own is not believed; this machine is 127.0.0.1',
  ]);
  expect(checked.of('sent again')).toEqual(['ok a POST came once: a 500, a 502, a 504, a cut connection']);
}

async function expectBelieving(name: LoadBalancer, setup: Configured & { advice: RegExp }): Promise<void> {
  const checked = await checkConfigured(name, setup);
  expect([checked.code, problemsOf(checked)]).toEqual([1, ['client address']]);
  expect(checked.of('client address')).toEqual([
    'problem the relay believes an X-Forwarded-For that a client sends: anybody can be any address',
  ]);
  expect(adviceOn(checked, 'client address')).toMatch(setup.advice);
}

/** A relay gives no status to a message that has left, but a cut has none. */
const wouldHappen = (after: string) =>
  after.includes('cut')
    ? 'a message would run, and be paid, as often'
    : 'an operation, or the resumption of a message, would be done as often';

async function expectRepeating(name: LoadBalancer, setup: Configured & { after: string }): Promise<void> {
  const checked = await checkConfigured(name, setup);
  expect([checked.code, problemsOf(checked)]).toEqual([1, ['sent again']]);
  expect(checked.of('sent again')).toEqual([
    `problem a POST that had failed came again (${setup.after}): ${wouldHappen(setup.after)}`,
  ]);
  expect(adviceOn(checked, 'sent again')).toMatch(/non_idempotent.*retry-on conn-failure.*lb_retry_match/);
}

describeWithRedis('two relays', () => {
  beforeAll(async () => {
    redis = await startRedis();
  });

  describe.each(['nginx', 'haproxy', 'caddy'] as const)('through %s, check', (name) => {
    describeThrough(name)('with configurations', () => {
      afterAll(stopPrograms);
      testSideBySide([
        ['finds no problem if it sends to another relay only what was not sent', () => expectGood(name)],
        ...Object.entries(BELIEVING[name]).map(
          ([what, setup]) => [`finds out that it ${what}`, () => expectBelieving(name, setup)] as const,
        ),
        ...Object.entries(REPEATING[name]).map(
          ([what, setup]) => [`finds out that it has ${what}`, () => expectRepeating(name, setup)] as const,
        ),
      ]);
    });
  });

  describeWithNginx('through deploy/nginx.conf, check', () => {
    test('finds no problem', async () => {
      const ports = [await freePort(), await freePort()] as const;
      const nginx = await startNginx(ports);
      tls.setDefaultCACertificates([nginx.certificate]);
      const { environment, close } = await startRelays(nginx.origin, { ports });
      const checked = await runCheck(
        ['--no-messages', '--through', nginx.origin, '--user', USER.name],
        environment,
      );
      tls.setDefaultCACertificates([identity.cert]);
      await close();
      expect(problemsOf(checked)).toEqual([]);
      expect(checked.of('client address')).toEqual([expect.stringMatching(/^ok /)]);
      expect(checked.of('sent again')).toEqual([expect.stringMatching(/^ok /)]);
    });
  });
});
