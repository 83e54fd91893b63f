import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { type Authority, makeAuthority, removeAuthorities } from '../support/authority.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import { startTlsCluster, startTlsSentinel } from '../support/redis-groups-tls.ts';
import { stopProcessesOfRedis } from '../support/redis-process.ts';
import { MASTER_NAME } from '../support/redis-sentinel.ts';
import { startRelayAndUpstream } from '../support/relay-and-upstream.ts';

jest.setTimeout(60_000);

let authority: Authority;
beforeAll(() => {
  authority = makeAuthority();
});
afterAll(() => {
  stopProcessesOfRedis();
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
