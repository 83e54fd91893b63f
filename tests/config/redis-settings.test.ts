import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { type Config, loadConfig } from '../../src/config/config.ts';
import { risksOf } from '../../src/config/risks.ts';
import { isLoopback } from '../../src/http/hosts.ts';
import { redisAddress } from '../../src/storage/redis-address.ts';
import { problemsOf } from '../harness/relay/environments.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { makeAuthority, removeAuthorities } from '../harness/service/authority.ts';

const authority = makeAuthority();
const { cert, key, keyFile, certFile } = authority.issue('DNS:relay.test');
const other = authority.issue('DNS:relay.test');
const folder = mkdtempSync(join(tmpdir(), 'bot-relay-redis-'));
afterAll(() => {
  removeAuthorities();
  rmSync(folder, { recursive: true });
});

function file(name: string, content: string): string {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
}

const BASE = { SESSION_SECRETS: CANARY.sessionSecret, CHANNEL_SECRET: CANARY.channelSecret };
const TLS = { ...BASE, REDIS_URL: 'rediss://relay:canary-word@redis.internal.test' };
const CLIENT = { REDIS_TLS_CERT: cert, REDIS_TLS_KEY: key };

/** The settings of Redis, or the problems, which show no secret. */
function load(environment: Record<string, string>): Config['redis'] | readonly string[] {
  const problems = problemsOf(environment);
  expect(problems.join()).not.toMatch(/canary|PRIVATE|CERTIFICATE-/);
  return problems.length > 0 ? problems : loadConfig(environment).redis;
}

describe('the settings of Redis', () => {
  test('are its URL alone with redis://', () => {
    expect(load({ ...BASE, REDIS_URL: 'redis://127.0.0.1' })).toMatchObject({ tls: undefined });
    expect(load(BASE)).toBeUndefined();
  });

  test('are read from variables or from files, with white space around them', () => {
    const values = { ...CLIENT, REDIS_TLS_CA: authority.cert, REDIS_TLS_SERVERNAME: 'cache.test' };
    const files = {
      REDIS_TLS_CA_FILE: authority.certFile,
      REDIS_TLS_CERT_FILE: certFile,
      REDIS_TLS_KEY_FILE: file('key.pem', `\n${key}\n\n`),
      REDIS_TLS_SERVERNAME: 'cache.test',
    };
    for (const given of [values, files]) {
      const { url, tls } = load({ ...TLS, ...given }) as NonNullable<Config['redis']>;
      expect(url.open()).toBe(TLS.REDIS_URL);
      expect(tls?.ca?.trim()).toBe(authority.cert.trim());
      expect(tls?.cert?.trim()).toBe(cert.trim());
      expect(tls?.key?.open().trim()).toBe(key.trim());
      expect(tls?.servername).toBe('cache.test');
    }
  });

  test('have several servers of a cluster or of Sentinel, which has a user of its own', () => {
    const [REDIS_URL, one] = ['rediss://relay:canary%2C%40word@a.test,b.test:7000', { ...BASE }];
    const address = { REDIS_URL, ...one };
    expect(load({ ...address, REDIS_MODE: 'cluster' })).toMatchObject({
      isCluster: true,
      sentinel: undefined,
    });
    const own = {
      REDIS_SENTINEL_MASTER: 'relays',
      REDIS_SENTINEL_USER: 'ada',
      REDIS_SENTINEL_PASSWORD: 'word',
    };
    const sentinel = load({ ...address, ...own, REDIS_MODE: 'sentinel' }) as NonNullable<Config['redis']>;
    expect(sentinel).toMatchObject({ isCluster: false, sentinel: { master: 'relays', user: 'ada' } });
    expect(sentinel.sentinel?.password?.open()).toBe('word');
    expect(redisAddress(sentinel.url)).toEqual({
      host: 'a.test,b.test:7000',
      nodes: [
        { host: 'a.test', hostname: 'a.test', port: 6379 },
        { host: 'b.test:7000', hostname: 'b.test', port: 7000 },
      ],
      ...{ tls: true, hasPassword: true, database: 0 },
    });
  });

  test.each(['canary,word', 'canary@word'])('refuse the password %s that is not encoded', (password) => {
    const REDIS_URL = `redis://relay:${password}@a.test,b.test`;
    expect(load({ ...BASE, REDIS_URL, REDIS_MODE: 'cluster' })).toEqual([
      expect.stringMatching(/^REDIS_URL must be a URL such as/),
    ]);
  });

  test('have IPv6 addresses as a socket takes them, which may be of the machine itself', () => {
    const { url } = load({ ...BASE, REDIS_URL: 'redis://[::1]:7000' }) as NonNullable<Config['redis']>;
    const [node] = redisAddress(url).nodes;
    expect(node).toEqual({ host: '[::1]:7000', hostname: '::1', port: 7000 });
    expect(isLoopback(String(node?.hostname))).toBe(true);
  });

  test('may have a certificate with its chain, and several CAs', () => {
    const chain = `${cert}\n${authority.cert}`;
    const environment = { ...TLS, ...CLIENT, REDIS_TLS_CERT: chain, REDIS_TLS_CA: `# mine\n${chain}` };
    expect(load(environment)).toMatchObject({ tls: { cert: chain } });
  });

  test('have no risk of a missing password if there is a client certificate', () => {
    const environment = { ...TLS, REDIS_URL: 'rediss://redis.internal.test' };
    const service = {
      UPSTREAM_BASE_URL: 'https://bots.example.net',
      UPSTREAM_API_KEYS: CANARY.key,
      BOTS: 'acme/helper',
    };
    const risks = (more: object) =>
      risksOf(loadConfig({ ...environment, ...service, ...more })).filter((risk) => /REDIS/.test(risk));
    expect(risks({})).toEqual([expect.stringMatching(/^REDIS_URL has no password/)]);
    expect(risks(CLIENT)).toEqual([]);
  });
});

const PATH_HINT = 'the path of a file goes into the variable with _FILE at its end';
const NO_CERTIFICATE = `holds no certificate in PEM form; ${PATH_HINT}`;
const NO_KEY = `holds no private key in PEM form, or one with a passphrase; ${PATH_HINT}`;
const CLEAR = 'is set, but REDIS_URL is not rediss://: the connection would not be encrypted';
const broken = cert.replace(/\n.{10}/, '\n');
const encrypted = spawnSync('openssl', ['pkey', '-in', keyFile, '-aes256', '-passout', 'pass:canary'], {
  encoding: 'utf8',
}).stdout;

describe('a start is refused', () => {
  const CLEAR_URL = { ...BASE, REDIS_URL: 'redis://redis.internal.test' };
  test.each<[string, Record<string, string>, ...string[]]>([
    [`REDIS_TLS_CA ${NO_CERTIFICATE}`, { ...TLS, REDIS_TLS_CA: certFile }],
    [`REDIS_TLS_CA ${NO_CERTIFICATE}`, { ...TLS, REDIS_TLS_CA: broken }],
    [`REDIS_TLS_CA ${NO_CERTIFICATE}`, { ...TLS, REDIS_TLS_CA: cert + broken }],
    [`REDIS_TLS_CA ${NO_CERTIFICATE}`, { ...TLS, REDIS_TLS_CA: key }],
    [`REDIS_TLS_KEY ${NO_KEY}`, { ...TLS, REDIS_TLS_CERT: cert, REDIS_TLS_KEY: cert }],
    [`REDIS_TLS_KEY ${NO_KEY}`, { ...TLS, REDIS_TLS_CERT: cert, REDIS_TLS_KEY: encrypted }],
    [
      'REDIS_TLS_CA_FILE names a file that cannot be read (ENOENT)',
      { ...TLS, REDIS_TLS_CA_FILE: join(folder, 'none'), REDIS_TLS_CERT_FILE: file('empty', '\n') },
      'REDIS_TLS_CERT_FILE names an empty file',
      'REDIS_TLS_KEY must be set with REDIS_TLS_CERT',
    ],
    [
      'REDIS_TLS_KEY and REDIS_TLS_KEY_FILE are both set; set one of them',
      { ...TLS, ...CLIENT, REDIS_TLS_KEY_FILE: keyFile },
    ],
    ['REDIS_TLS_KEY must be set with REDIS_TLS_CERT', { ...TLS, REDIS_TLS_CERT: cert }],
    ['REDIS_TLS_CERT must be set with REDIS_TLS_KEY', { ...TLS, REDIS_TLS_KEY: key }],
    [
      'REDIS_TLS_KEY is not the key of the first certificate of REDIS_TLS_CERT',
      { ...TLS, REDIS_TLS_CERT: cert, REDIS_TLS_KEY: other.key },
    ],
    [`REDIS_TLS_CA ${CLEAR}`, { ...CLEAR_URL, REDIS_TLS_CA: cert }],
    [`REDIS_TLS_CERT ${CLEAR}`, { ...CLEAR_URL, ...CLIENT }, `REDIS_TLS_KEY ${CLEAR}`],
    [`REDIS_TLS_SERVERNAME ${CLEAR}`, { ...CLEAR_URL, REDIS_TLS_SERVERNAME: 'cache.test' }],
    ['REDIS_URL must be set with REDIS_TLS_CA', { ...BASE, REDIS_TLS_CA: cert }],
    ['REDIS_TLS_SERVERNAME must be a host name', { ...TLS, REDIS_TLS_SERVERNAME: '10.0.0.1' }],
    [
      'REDIS_URL has several servers, but REDIS_MODE is single: set it to cluster or sentinel',
      { ...BASE, REDIS_URL: 'redis://a:1,b:2' },
    ],
    [
      'REDIS_URL has a database, but REDIS_MODE is cluster: a cluster has only the database 0',
      { ...BASE, REDIS_URL: 'redis://a:1,b:2/3', REDIS_MODE: 'cluster' },
    ],
    ['REDIS_URL must be set with REDIS_MODE=cluster', { ...BASE, REDIS_MODE: 'cluster' }],
    [
      'REDIS_SENTINEL_MASTER must be set with REDIS_MODE=sentinel',
      { ...BASE, REDIS_URL: 'redis://a', REDIS_MODE: 'sentinel' },
    ],
    [
      'REDIS_SENTINEL_MASTER is set, but REDIS_MODE is not sentinel',
      { ...BASE, REDIS_URL: 'redis://a', REDIS_SENTINEL_MASTER: 'm', REDIS_SENTINEL_PASSWORD: 'canary-word' },
      'REDIS_SENTINEL_PASSWORD is set, but REDIS_MODE is not sentinel',
    ],
    [
      'REDIS_SENTINEL_MASTER must be the name of a master',
      {
        ...{ ...BASE, REDIS_URL: 'redis://a', REDIS_MODE: 'sentinel' },
        ...{ REDIS_SENTINEL_MASTER: 'can ary', REDIS_SENTINEL_USER: 'can ary' },
      },
      'REDIS_SENTINEL_USER must be the name of a user',
      'REDIS_SENTINEL_PASSWORD must be set with REDIS_SENTINEL_USER',
    ],
    [
      'REDIS_URL holds a % in its user or password that must be written as %25',
      { ...BASE, REDIS_URL: 'rediss://:canary%@redis.internal.test' },
    ],
  ])('if %s', (problem, environment, ...more) => {
    expect(load(environment)).toEqual([problem, ...more]);
  });
});
