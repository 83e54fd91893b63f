import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startBotService } from '../../src/service/bot-service.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { type Identity, selfSigned } from '../harness/faults/fake-load-balancer.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { adviceOn, type Checked, checkEnvironment, problemsOf, runCheck } from '../harness/relay/check.ts';
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
afterAll(() => tls.setDefaultCACertificates(trustedBefore));

/** Shared by all relays. */
let redis: RedisServer;
afterAll(async () => {
  await stopPrograms();
  stopRedis();
  await stopProcesses();
});

interface Setup {
  readonly lines?: string;
  readonly more?: Record<string, string>;
  /** The relays' ports. */
  readonly ports?: readonly [number, number];
}

/** Two relays that share a Redis, and the environment of the check. */
async function startRelays(origin: string, { more, ports = [0, 0] }: Setup) {
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
async function check(name: LoadBalancer, setup: Setup): Promise<Checked> {
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

const GOOD: Readonly<Record<LoadBalancer, Readonly<Record<string, Setup>>>> = {
  nginx: {
    'overwrites X-Forwarded-For': { lines: 'proxy_set_header X-Forwarded-For $remote_addr;' },
    'extends X-Forwarded-For, and sends to another relay only what was not sent': {
      lines: `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_next_upstream error timeout http_500 http_502 http_503 http_504;`,
    },
  },
  haproxy: {
    'overwrites X-Forwarded-For': { lines: 'http-request set-header X-Forwarded-For %[src]' },
    'extends X-Forwarded-For, and sends to another relay only what was not sent': {
      lines: 'option forwardfor\n  option redispatch\n  retries 3\n  retry-on conn-failure 503',
    },
  },
  caddy: {
    'has its default configuration': {},
    'sends to another relay only what was not sent': { lines: 'lb_try_duration 2s' },
  },
};

/** Configurations that let clients claim any address, and the advice for each. */
const BELIEVING: Readonly<Record<LoadBalancer, Readonly<Record<string, Setup & { advice: RegExp }>>>> = {
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
const REPEATING: Readonly<Record<LoadBalancer, Readonly<Record<string, Setup & { after: string }>>>> = {
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

async function expectGood(name: LoadBalancer, setup: Setup): Promise<void> {
  const checked = await check(name, setup);
  expect(problemsOf(checked)).toEqual([]);
  expect(checked.code).toBe(0);
  expect(checked.of('client address')).toEqual([
    'ok an X-Forwarded-For of its own is not believed; this machine is 127.0.0.1',
  ]);
  expect(checked.of('sent again')).toEqual(['ok a POST came once: a 500, a 502, a 504, a cut connection']);
}

async function expectBelieving(name: LoadBalancer, setup: Setup & { advice: RegExp }): Promise<void> {
  const checked = await check(name, setup);
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

async function expectRepeating(name: LoadBalancer, setup: Setup & { after: string }): Promise<void> {
  const checked = await check(name, setup);
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
        ...Object.entries(GOOD[name]).map(
          ([what, setup]) => [`finds no problem if it ${what}`, () => expectGood(name, setup)] as const,
        ),
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
