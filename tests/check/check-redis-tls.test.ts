import { afterAll, beforeAll, expect } from '@jest/globals';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { describeWithRedis, stopRedis } from '../harness/redis/redis.ts';
import { startTlsRedis, type TlsRedis } from '../harness/redis/redis-tls.ts';
import { checkEnvironment, type Row } from '../harness/relay/check.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';
import {
  type Authority,
  type Issued,
  makeAuthority,
  removeAuthorities,
} from '../harness/service/authority.ts';

const ADDRESS = 'IP:127.0.0.1';
const shown = ({ cert, key }: Issued) => ({ REDIS_TLS_CERT: cert, REDIS_TLS_KEY: key });
let authority: Authority;
let stranger: Authority;
let open: TlsRedis;
let asking: TlsRedis;
let named: TlsRedis;

afterAll(async () => {
  stopRedis();
  removeAuthorities();
  await stopProcesses();
});

describeWithRedis('Redis with TLS', () => {
  beforeAll(async () => {
    [authority, stranger] = [makeAuthority(), makeAuthority()];
    const issued = authority.issue(ADDRESS);
    open = await startTlsRedis(issued);
    asking = await startTlsRedis(issued, { clients: authority });
    named = await startTlsRedis(authority.issue('DNS:redis.internal.test'));
  });

  /** The environment of a check of this Redis. */
  const environmentOf = (redis: TlsRedis, more: Record<string, string>) =>
    checkEnvironment('http://127.0.0.1:9', {
      REDIS_URL: redis.url(),
      REDIS_TLS_CA: authority.cert,
      ...more,
    });

  const PROBLEMS: readonly (readonly [
    what: string,
    cause: RegExp,
    advice: RegExp,
    given: () => [TlsRedis, Record<string, string>],
  ])[] = [
    [
      'a CA that is not trusted',
      /^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/,
      /REDIS_TLS_CA_FILE/,
      () => [open, { REDIS_TLS_CA: '' }],
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

  /** Runs the check as a process: within Jest, errors of Node.js are no `Error` to the library of Redis. */
  async function rowOf(environment: Record<string, string>): Promise<Row | undefined> {
    const ran = startProcess({ args: ['check', '--json', '--no-messages'], environment });
    await ran.exited;
    const { findings } = JSON.parse(ran.stdout()) as { findings: Row[] };
    return findings.find(({ check }) => check === 'Redis');
  }

  async function expectProblem([, cause, advice, given]: (typeof PROBLEMS)[number]): Promise<void> {
    const row = await rowOf(environmentOf(...given()));
    expect(row?.state).toBe('problem');
    expect(/^cannot be used \((\w+)\)$/.exec(row?.says ?? '')?.[1]).toMatch(cause);
    expect(row?.advice).toMatch(advice);
    expect(row?.advice).not.toMatch(/NODE_/);
  }

  // Each check waits until connections have failed.
  testSideBySide(
    [
      [
        'that answers can be used, also if it asks for a certificate',
        async () => {
          const client = authority.issue('DNS:relay.test');
          for (const environment of [environmentOf(open, {}), environmentOf(asking, shown(client))]) {
            const { says } = (await rowOf(environment)) ?? {};
            expect(says).toMatch(/^answers in [\d.]+ ms, over TLS$/);
          }
        },
      ],
      ...PROBLEMS.map(
        (row) =>
          [`is a problem with ${row[0]}, and the advice is about Redis`, () => expectProblem(row)] as const,
      ),
      [
        'is a problem with an unknown CA even if Node.js is told to check no certificate',
        async () => {
          const environment = {
            ...environmentOf(open, { REDIS_TLS_CA: '' }),
            NODE_TLS_REJECT_UNAUTHORIZED: '0',
          };
          const ran = startProcess({ args: ['check', '--no-messages'], environment });
          expect((await ran.exited).code).toBe(1);
          expect(ran.stdout()).toMatch(
            /^problem +Redis .*cannot be used \(UNABLE_TO_VERIFY_LEAF_SIGNATURE\)$/m,
          );
        },
      ],
    ],
    3,
  );
});
