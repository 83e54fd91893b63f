import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { eventually } from '../harness/clock/until.ts';
import { describeWithRedis, stopRedis } from '../harness/redis/redis.ts';
import { MASTER_NAME, sentinelFile } from '../harness/redis/redis-sentinel.ts';
import { startServer } from '../harness/redis/redis-server.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { type Authority, makeAuthority, removeAuthorities } from '../harness/service/authority.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

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

jest.setTimeout(60_000);

let authority: Authority;
beforeAll(() => {
  authority = makeAuthority();
});
afterAll(() => {
  stopRedis();
  removeAuthorities();
});

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
