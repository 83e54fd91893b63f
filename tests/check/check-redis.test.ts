import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { startCluster } from '../harness/redis/redis-cluster.ts';
import { MASTER_NAME, startSentinels } from '../harness/redis/redis-sentinel.ts';
import { startTlsRedis, type TlsRedis } from '../harness/redis/redis-tls.ts';
import { checkEnvironment, type Row, runCheck } from '../harness/relay/check.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';
import {
  type Authority,
  type Issued,
  makeAuthority,
  removeAuthorities,
} from '../harness/service/authority.ts';
import { startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

afterAll(async () => {
  stopRedis();
  removeAuthorities();
  await stopProcesses();
});

type Environment = Readonly<Record<string, string>>;
type Case = readonly [what: string, run: () => Promise<void>];

const environmentOf = (environment: Environment) => checkEnvironment('http://127.0.0.1:9', environment);
/** Checks with this Redis, without a message; returns what it says of Redis. One that is slow is a note. */
async function check(environment: Environment): Promise<string[]> {
  return (await runCheck(['--no-messages'], environmentOf(environment))).of('Redis');
}
const answers = (kind: string) =>
  expect.stringMatching(new RegExp(`^(ok|note) answers in [\\d.]+ ms, not encrypted${kind}$`));
const ALONE = 'note has a master without a replica: if it is lost, nobody takes its place';

/** Each waits for servers, or until a connection has failed. */
const CASES: readonly Case[] = [
  ...(
    [
      ['noeviction', []],
      [
        'allkeys-lru',
        [
          'problem may evict what it holds (maxmemory-policy allkeys-lru): a session that it evicts is signed out, and a message whose name it evicts can run twice',
        ],
      ],
    ] as const
  ).map(
    ([policy, expected]): Case => [
      `with maxmemory-policy ${policy} must keep what it holds`,
      async () => {
        const { url } = await startRedis('--maxmemory-policy', policy);
        expect(await check({ REDIS_URL: url })).toEqual([answers(''), ...expected]);
      },
    ],
  ),
  [
    'may forbid to ask what it keeps, and is no cluster if it is a single server',
    async () => {
      const redis = await startRedis();
      await redis.command('ACL', 'SETUSER', 'default', '-info');
      const [one, cluster] = await Promise.all([
        check({ REDIS_URL: redis.url }),
        check({ REDIS_URL: redis.url, REDIS_MODE: 'cluster' }),
      ]);
      expect(one).toEqual([answers(''), 'note does not tell with INFO whether it evicts']);
      expect(cluster).toEqual(['problem cannot be used (ERR)']);
    },
  ],
  [
    'counts the messages of the check together with those of all instances',
    async () => {
      const redis = await startRedis();
      const upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
      // Uses up the whole budget of a time that is longer than the check waits.
      const slots = 'bot-relay:{budget:acme/helper}:slots';
      const [seconds, micros] = (await redis.command('TIME')) as [string, string];
      await redis.command('ZADD', slots, String(Number(seconds) * 1e6 + Number(micros)), '1 other 1');
      const environment = { REDIS_URL: redis.url, RATE_LIMIT: '1', RATE_WINDOW_MS: '60000' };
      const { of } = await runCheck([], checkEnvironment(upstream.url, environment));
      expect(of('key')).toEqual(['problem the bot takes no more messages right now']);
      expect(upstream.requests).toEqual([]);
      await upstream.close();
    },
  ],
  [
    'says how many masters a cluster has, that one may evict, and that one has no replica',
    async () => {
      const { url, servers, masterOf } = await startCluster();
      const environment = { REDIS_URL: url, REDIS_MODE: 'cluster' };
      expect(await check(environment)).toEqual([answers(', a cluster of 3 masters')]);
      const master = await masterOf('bot-relay:check');
      await master.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
      // Its replica is one of the servers that do not tell of replicas of their own.
      const roles = await Promise.all(servers.map((server) => server.command('ROLE') as Promise<string[]>));
      const ofMaster = roles.findIndex(([role, , port]) => role === 'slave' && Number(port) === master.port);
      await (servers[ofMaster] as RedisServer).stop();
      const other = servers.find((server, n) => roles[n]?.[0] === 'master' && server !== master);
      const [cluster, alone] = await Promise.all([
        check(environment),
        check({ REDIS_URL: String(other?.url) }),
      ]);
      expect(cluster).toContainEqual(
        expect.stringMatching(/^problem may evict what it holds \(maxmemory-policy allkeys-lru\)/),
      );
      expect(cluster).toContainEqual(ALONE);
      expect(alone).toEqual(['problem cannot be used (MOVED)']);
    },
  ],
  [
    'is found by Sentinel, which says what is wrong with the settings',
    async () => {
      const { url, servers } = await startSentinels();
      const environment = { REDIS_URL: url, REDIS_MODE: 'sentinel', REDIS_SENTINEL_MASTER: MASTER_NAME };
      const [found, others] = await Promise.all([
        check(environment),
        check({ ...environment, REDIS_SENTINEL_MASTER: 'others' }),
      ]);
      expect(found).toEqual([answers(', the master that Sentinel names')]);
      expect(others).toEqual(['problem cannot be used (NOMASTER)']);
      await servers[1]?.stop();
      expect(await check(environment)).toContainEqual(ALONE);
    },
  ],
];

describeWithRedis('Redis that is quick', () => {
  afterAll(() => void jest.restoreAllMocks());

  test('is ok, with the time that it takes', async () => {
    // The clock stands still, so that Redis is quick, however busy the machine is.
    jest.spyOn(performance, 'now').mockReturnValue(0);
    const { url } = await startRedis();
    const { rows } = await runCheck(['--no-messages'], environmentOf({ REDIS_URL: url }));
    expect(rows.find((row) => row.check === 'Redis')).toMatchObject({
      ...{ state: 'ok', about: url.slice('redis://'.length) },
      ...{ says: 'answers in 0.0 ms, not encrypted', measured: { latencyMs: 0 } },
    });
  });
});

let authority: Authority;
let stranger: Authority;
let open: TlsRedis;
let asking: TlsRedis;
let named: TlsRedis;
const shown = ({ cert, key }: Issued) => ({ REDIS_TLS_CERT: cert, REDIS_TLS_KEY: key });
/** Runs the check as a process: within Jest, errors of Node.js are no `Error` to the library of Redis. */
async function rowOf(redis: TlsRedis, more: Environment): Promise<Row | undefined> {
  const environment = environmentOf({ REDIS_URL: redis.url(), REDIS_TLS_CA: authority.cert, ...more });
  const ran = startProcess({ args: ['check', '--json', '--no-messages'], environment });
  await ran.exited;
  return (JSON.parse(ran.stdout()) as { findings: Row[] }).findings.find(({ check }) => check === 'Redis');
}

const PROBLEMS: readonly (readonly [
  what: string,
  cause: RegExp,
  advice: RegExp,
  given: () => [TlsRedis, Environment],
])[] = [
  [
    'a CA that is not trusted',
    /^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/,
    /REDIS_TLS_CA_FILE/,
    () => [open, { REDIS_TLS_CA: '' }],
  ],
  [
    'an unknown CA, even if Node.js is told to check no certificate',
    /^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/,
    /REDIS_TLS_CA_FILE/,
    () => [open, { REDIS_TLS_CA: '', NODE_TLS_REJECT_UNAUTHORIZED: '0' }],
  ],
  [
    'another name',
    /^ERR_TLS_CERT_ALTNAME_INVALID$/,
    /REDIS_URL, or in REDIS_TLS_SERVERNAME/,
    () => [named, {}],
  ],
  [
    'a certificate that is asked for and missing',
    /^ERR_SSL_\w+REQUIRED$/,
    /set REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE/,
    () => [asking, {}],
  ],
  [
    'a certificate that is asked for, and is of another CA',
    /^ERR_SSL_\w+UNKNOWN_CA$/,
    /does not take the certificate of REDIS_TLS_CERT/,
    () => [asking, shown(stranger.issue('DNS:relay.test'))],
  ],
  [
    'a port without TLS',
    /^TIMEOUT$/,
    /whether TLS is spoken at that port/,
    () => [open, { REDIS_URL: open.server.url.replace('redis:', 'rediss:') }],
  ],
];

const TLS: readonly Case[] = [
  [
    'can be used, also if it asks for a certificate',
    async () => {
      for (const row of [
        await rowOf(open, {}),
        await rowOf(asking, shown(authority.issue('DNS:relay.test'))),
      ])
        expect(row?.says).toMatch(/^answers in [\d.]+ ms, over TLS$/);
    },
  ],
  ...PROBLEMS.map(
    ([what, cause, advice, given]): Case => [
      `is a problem with ${what}, and the advice is about Redis`,
      async () => {
        const row = await rowOf(...given());
        expect(row?.state).toBe('problem');
        expect(/^cannot be used \((\w+)\)$/.exec(row?.says ?? '')?.[1]).toMatch(cause);
        expect(row?.advice).toMatch(advice);
        expect(row?.advice).not.toMatch(/NODE_/);
      },
    ],
  ),
];

describeWithRedis('Redis', () => {
  beforeAll(async () => {
    [authority, stranger] = [makeAuthority(), makeAuthority()];
    const issued = authority.issue('IP:127.0.0.1');
    open = await startTlsRedis(issued);
    asking = await startTlsRedis(issued, { clients: authority });
    named = await startTlsRedis(authority.issue('DNS:redis.internal.test'));
  });

  testSideBySide([...CASES, ...TLS.map(([what, run]): Case => [`with TLS ${what}`, run])]);
});
