import { afterAll, expect, test } from '@jest/globals';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { startCluster } from '../harness/redis/redis-cluster.ts';
import { MASTER_NAME, startSentinels } from '../harness/redis/redis-sentinel.ts';
import { checkEnvironment, runCheck } from '../harness/relay/check.ts';

afterAll(() => {
  stopRedis();
});

/** Checks with this Redis, without a message; returns what it says of Redis. One that is slow is a note. */
async function check(environment: Record<string, string>) {
  const { of } = await runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', environment));
  return of('Redis');
}

const ALONE = 'note has a master without a replica: if it is lost, nobody takes its place';

describeWithRedis('the check of Redis', () => {
  test('says how many masters a cluster has, and that one may evict what it holds', async () => {
    const { url, servers, masterOf } = await startCluster();
    const environment = { REDIS_URL: url, REDIS_MODE: 'cluster' };
    expect(await check(environment)).toEqual([
      expect.stringMatching(/^(ok|note) answers in [\d.]+ ms, not encrypted, a cluster of 3 masters$/),
    ]);
    const master = await masterOf('bot-relay:check');
    await master.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    expect(await check(environment)).toContainEqual(
      expect.stringMatching(/^problem may evict what it holds \(maxmemory-policy allkeys-lru\)/),
    );
    // Its replica is one of the servers that do not tell of replicas of their own.
    const roles = await Promise.all(servers.map((server) => server.command('ROLE') as Promise<string[]>));
    const ofMaster = roles.findIndex(([role, , port]) => role === 'slave' && Number(port) === master.port);
    await (servers[ofMaster] as RedisServer).stop();
    expect(await check(environment)).toContainEqual(ALONE);
    const other = servers.find((server, n) => roles[n]?.[0] === 'master' && server !== master);
    expect(await check({ REDIS_URL: String(other?.url) })).toEqual(['problem cannot be used (MOVED)']);
  });

  test('finds the master by Sentinel, and says what is wrong with the settings', async () => {
    const { url, servers } = await startSentinels();
    const environment = { REDIS_URL: url, REDIS_MODE: 'sentinel', REDIS_SENTINEL_MASTER: MASTER_NAME };
    expect(await check(environment)).toEqual([
      expect.stringMatching(
        /^(ok|note) answers in [\d.]+ ms, not encrypted, the master that Sentinel names$/,
      ),
    ]);
    await servers[1]?.stop();
    expect(await check(environment)).toContainEqual(ALONE);
    expect(await check({ ...environment, REDIS_SENTINEL_MASTER: 'others' })).toEqual([
      'problem cannot be used (NOMASTER)',
    ]);
  });

  test('says that a single server is no cluster', async () => {
    const { url } = await startRedis();
    expect(await check({ REDIS_URL: url, REDIS_MODE: 'cluster' })).toEqual(['problem cannot be used (ERR)']);
  });
});
