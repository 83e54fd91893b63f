import { spawnSync } from 'node:child_process';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { loadConfig } from '../../src/config/config.ts';
import { createLogger } from '../../src/logger.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import type { RedisSettings } from '../../src/storage/redis-settings.ts';
import { eventually, until } from '../harness/clock/until.ts';
import { answering, describeWithRedis, stopRedis } from '../harness/redis/redis.ts';
import { MASTER_NAME, sentinelFile } from '../harness/redis/redis-sentinel.ts';
import { startServer } from '../harness/redis/redis-server.ts';
import { startTlsRedis, type TlsRedis } from '../harness/redis/redis-tls.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { inFrontOf, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  type Authority,
  type Issued,
  makeAuthority,
  removeAuthorities,
} from '../harness/service/authority.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const HERE = 'IP:127.0.0.1';
const opened: Redis[] = [];
let authority: Authority;
let stranger: Authority;
let server: Issued;
beforeAll(() => {
  [authority, stranger] = [makeAuthority(), makeAuthority()];
  server = authority.issue(HERE);
});
afterAll(() => {
  for (const redis of opened.splice(0)) redis.close();
  stopRedis();
  removeAuthorities();
});

/** Opens Redis as a relay with these variables does. Its log goes to `lines`. */
function open(environment: Record<string, string>): { redis: Redis; lines: string[] } {
  const lines: string[] = [];
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const secrets = { SESSION_SECRETS: CANARY.sessionSecret, CHANNEL_SECRET: CANARY.channelSecret };
  const settings = loadConfig({ ...secrets, ...environment }).redis as RedisSettings;
  const redis = openRedis({ ...settings, logger });
  opened.push(redis);
  return { redis, lines };
}

/** Expects that this relay gets no connection; resolves with the cause in its log. */
async function refusal(environment: Record<string, string>): Promise<string> {
  const { redis, lines } = open(environment);
  await until(() => lines.length > 0, 20);
  const line = JSON.parse(lines[0] as string);
  expect(line.msg).toBe('redis lost');
  await expect(redis.onEach((server) => server.ping())).rejects.toMatchObject({
    code: 'session_store_unavailable',
  });
  redis.close();
  return line.cause;
}

describeWithRedis('the certificate of Redis', () => {
  let redis: TlsRedis;
  beforeAll(async () => {
    redis = await startTlsRedis(server);
  });

  test('is taken if the CA of REDIS_TLS_CA has signed it, for commands and for messages', async () => {
    const { redis: one } = open({ REDIS_URL: redis.url(), REDIS_TLS_CA: authority.cert });
    await answering(one);
    await one.run((client) => client.set('a', '1'));
    expect(await redis.server.command('GET', 'a')).toBe('1');
    const heard: string[] = [];
    await one.subscribe('news', (message) => heard.push(message));
    await redis.server.command('PUBLISH', 'news', 'one');
    await until(() => heard.length > 0);
    expect(heard).toEqual(['one']);
  });

  test('is taken if one of several CAs has signed it', async () => {
    const both = `${stranger.cert}\n${authority.cert}`;
    await answering(open({ REDIS_URL: redis.url(), REDIS_TLS_CA: both }).redis);
  });

  test('is refused if it is of another CA', async () => {
    const environment = { REDIS_URL: redis.url(), REDIS_TLS_CA: stranger.cert };
    expect(await refusal(environment)).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE');
    expect(await refusal({ REDIS_URL: redis.url() })).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE');
  });

  test('is refused if it is for another host name, unless REDIS_TLS_SERVERNAME names it', async () => {
    const named = await startTlsRedis(authority.issue('DNS:redis.internal.test'));
    const environment = { REDIS_URL: named.url(), REDIS_TLS_CA: authority.cert };
    expect(await refusal(environment)).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
    await answering(open({ ...environment, REDIS_TLS_SERVERNAME: 'redis.internal.test' }).redis);
    const other = { ...environment, REDIS_TLS_SERVERNAME: 'other.internal.test' };
    expect(await refusal(other)).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
    // The name replaces the host of the URL, for which this certificate is.
    const byAddress = { REDIS_URL: redis.url(), REDIS_TLS_CA: authority.cert };
    expect(await refusal({ ...byAddress, REDIS_TLS_SERVERNAME: 'localhost' })).toBe(
      'ERR_TLS_CERT_ALTNAME_INVALID',
    );
  });

  test('is asked for: a server without TLS is refused', async () => {
    const url = redis.server.url.replace('redis:', 'rediss:');
    // It waits for the end of a line that never comes.
    expect(await refusal({ REDIS_URL: url, REDIS_TLS_CA: authority.cert })).toBe('TIMEOUT');
  });

  test('can be renewed by the same CA while the relay runs', async () => {
    const renewed = await startTlsRedis(server);
    const { redis: one, lines } = open({ REDIS_URL: renewed.url(), REDIS_TLS_CA: authority.cert });
    await answering(one);
    const files = ({ certFile, keyFile }: Issued) => ['tls-cert-file', certFile, 'tls-key-file', keyFile];
    const cut = async (issued: Issued) => {
      await renewed.server.command('CONFIG', 'SET', ...files(issued));
      await renewed.server.command('CLIENT', 'KILL', 'SKIPME', 'yes');
    };
    await cut(authority.issue(HERE));
    await until(() => lines.length >= 3, 20);
    await answering(one);
    await cut(stranger.issue(HERE));
    await until(() => lines.length >= 4, 20);
    await until(async () => {
      const error = await one.onEach((server) => server.ping()).catch((error) => error);
      return error.cause === 'UNABLE_TO_VERIFY_LEAF_SIGNATURE';
    }, 20);
  });
});

describeWithRedis('a client certificate', () => {
  let redis: TlsRedis;
  let environment: Record<string, string>;
  beforeAll(async () => {
    redis = await startTlsRedis(server, { clients: authority });
    environment = { REDIS_URL: redis.url(), REDIS_TLS_CA: authority.cert };
  });
  const shown = ({ cert, key }: Issued) => ({
    ...environment,
    REDIS_TLS_CERT: cert,
    REDIS_TLS_KEY: key,
  });

  test('is shown to a Redis that asks for it', async () => {
    await answering(open(shown(authority.issue('DNS:relay.test'))).redis);
  });

  // In a process of its own: errors of Node.js are of another realm than a test's.
  async function causeAt(more: Record<string, string>): Promise<string> {
    const own = { ...inFrontOf('http://127.0.0.1:9'), AUTH_MODE: 'guest', ...more };
    const [line] = await startProcess({ environment: own }).waitFor(/^.*"redis lost".*$/m);
    return JSON.parse(line).cause;
  }
  afterEach(() => stopProcesses(keys));
  const keys: string[] = [];

  test('must be shown to such a Redis', async () => {
    expect(await causeAt(environment)).toMatch(/^ERR_SSL_\w+CERTIFICATE_REQUIRED$/);
  });

  test('is not taken if it is of another CA, and the key is not shown', async () => {
    const issued = stranger.issue('DNS:relay.test');
    keys.push(issued.key.split('\n')[1] as string);
    expect(await causeAt(shown(issued))).toMatch(/^ERR_SSL_\w+UNKNOWN_CA$/);
  });
});

describeWithRedis('a user of Redis', () => {
  const PASSWORD = 'canary:redis/pass#word@1%';
  const user = (password: string) => `relay:${encodeURIComponent(password)}`;
  let redis: TlsRedis;
  beforeAll(async () => {
    redis = await startTlsRedis(server, { options: ['--requirepass', 'canary-default-password'] });
    const admin = redis.server.url.replace('://', '://:canary-default-password@');
    const { redis: one } = open({ REDIS_URL: admin });
    await answering(one);
    const rights = ['on', `>${PASSWORD}`, '~own:*', '-@all', '+ping', '+hello', '+get', '+acl|whoami'];
    await one.onEach((server) => server.aclSetUser('relay', rights));
  });
  const as = (text: string) => ({ REDIS_URL: redis.url(text), REDIS_TLS_CA: authority.cert });

  test('is the one of the URL, whose password may have every character if it is percent-encoded', async () => {
    const { redis: one, lines } = open(as(user(PASSWORD)));
    await answering(one);
    expect(await one.onEach((server) => server.aclWhoAmI())).toEqual(['relay']);
    expect(await one.run((client) => client.get('own:a'))).toBeNull();
    const NOPERM = { code: 'session_store_unavailable', cause: 'NOPERM' };
    await expect(one.run((client) => client.get('other'))).rejects.toMatchObject(NOPERM);
    await expect(one.run((client) => client.set('own:a', '1'))).rejects.toMatchObject(NOPERM);
    expect(lines.join('')).not.toContain('canary');
  });

  test.each([
    ['another password', 'WRONGPASS', () => user('canary-wrong')],
    ['no password', 'NOAUTH', () => 'relay'],
  ])('is refused with %s: %s', async (_how, cause, text) => {
    const { redis: one, lines } = open(as(text()));
    await until(() => lines.length > 0, 20);
    expect(JSON.parse(lines[0] as string)).toMatchObject({ msg: 'redis lost', cause });
    await expect(one.onEach((server) => server.ping())).rejects.toMatchObject({ cause });
    expect(lines.join('')).not.toContain('canary');
  });
});

describe('the log and errors', () => {
  test('do not hold the key or the URL of the settings', () => {
    const { cert, key } = authority.issue(HERE);
    const { redis } = loadConfig({
      SESSION_SECRETS: CANARY.sessionSecret,
      CHANNEL_SECRET: CANARY.channelSecret,
      REDIS_URL: 'rediss://relay:canary-word@redis.test',
      REDIS_TLS_CERT: cert,
      REDIS_TLS_KEY: key,
    });
    const lines: string[] = [];
    createLogger('info', { write: (line: string) => void lines.push(line) }).info({ redis });
    expect(lines.join('')).toContain('"key":"[secret]"');
    expect(lines.join('')).not.toMatch(/canary|PRIVATE/);
  });
});

const NO_FILES = ['--save', '', '--appendonly', 'no'];

/** Starts a server that also listens with TLS, and asks clients and other servers for a certificate of this CA. */
async function startTlsProcess(authority: Authority, ...options: string[]) {
  const { certFile, keyFile } = authority.issue('IP:127.0.0.1');
  const tlsPort = await freePort();
  const tls = [
    ...['--tls-port', String(tlsPort), '--tls-replication', 'yes', '--tls-auth-clients', 'yes'],
    ...['--tls-cert-file', certFile, '--tls-key-file', keyFile, '--tls-ca-cert-file', authority.certFile],
  ];
  const server = await startServer(...options, ...tls);
  return { ...server, tlsPort, tlsHost: `127.0.0.1:${tlsPort}` };
}

/** Starts a cluster of three masters, whose servers name each other by their ports with TLS; resolves with one's URL. */
async function startTlsCluster(authority: Authority): Promise<string> {
  const hosts: string[] = [];
  let url = '';
  for (let n = 0; n < 3; n += 1) {
    const bus = [
      '--cluster-enabled',
      'yes',
      '--tls-cluster',
      'yes',
      '--cluster-port',
      String(await freePort()),
    ];
    const server = await startTlsProcess(authority, ...NO_FILES, ...bus);
    hosts.push(server.host);
    url = `rediss://${server.tlsHost}`;
    if (n < 2) continue;
    const create = ['--cluster', 'create', ...hosts, '--cluster-replicas', '0', '--cluster-yes'];
    const { status, stdout } = spawnSync('redis-cli', create, { encoding: 'utf8', timeout: 20_000 });
    if (status !== 0) throw new Error(stdout);
    await eventually(async () => {
      const info = String(await server.command('CLUSTER', 'INFO'));
      if (!info.includes('cluster_state:ok')) throw new Error(info);
    });
  }
  return url;
}

/** Starts a master and a sentinel that watches it at its port with TLS; resolves with the sentinel's URL. */
async function startTlsSentinel(authority: Authority): Promise<string> {
  const { tlsPort } = await startTlsProcess(authority, ...NO_FILES);
  const { tlsHost } = await startTlsProcess(authority, sentinelFile(tlsPort, 1), '--sentinel');
  return `rediss://${tlsHost}`;
}

describeWithRedis('with rediss:// and a client certificate, a relay carries a message', () => {
  test.each([
    ['a cluster', startTlsCluster, { REDIS_MODE: 'cluster' }],
    ['Sentinel', startTlsSentinel, { REDIS_MODE: 'sentinel', REDIS_SENTINEL_MASTER: MASTER_NAME }],
  ])('over %s', async (_what, startGroup, environment) => {
    const REDIS_URL = await startGroup(authority);
    const { cert, key } = authority.issue('DNS:relay.test');
    const tls = { REDIS_TLS_CA: authority.cert, REDIS_TLS_CERT: cert, REDIS_TLS_KEY: key };
    const answer = wholeStream('data: 1\n\n');
    const pair = await startRelayAndUpstream((socket) => void socket.write(answer), {
      ...{ REDIS_URL, ...tls },
      ...environment,
    });
    const response = await pair.relay.send(pair.cookie);
    expect(response.status).toBe(200);
    expect(await response.text()).toBe('data: 1\n\n');
    await pair.close();
  });
});
