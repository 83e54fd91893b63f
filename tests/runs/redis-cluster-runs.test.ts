import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { redisRunStore } from '../../src/runs/redis-run-store.ts';
import type { RunStore } from '../../src/runs/run-store.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, stopRedis } from '../harness/redis/redis.ts';
import { startCluster } from '../harness/redis/redis-cluster.ts';
import { runSealer } from '../harness/relay/run-sealer.ts';
import { begunRun, claimedRun, complete, endOf, joinedRun, say } from '../harness/runs/carried-run.ts';
import { LEASES, nameOf, TIMES } from '../harness/runs/run-stores.ts';

const opened: Redis[] = [];
let stores: RunStore[];
beforeAll(async () => {
  const { url } = await startCluster();
  stores = [];
  for (let n = 0; n < 2; n++) {
    const logger = createLogger('silent');
    const redis = openRedis({ url: secret(url), isCluster: true, logger, commandTimeoutMs: 20_000 });
    await redis.ready(30_000);
    opened.push(redis);
    stores.push(redisRunStore(redis, runSealer, { times: TIMES, leases: LEASES, maxBytes: 65_536 }));
  }
});
afterAll(() => {
  for (const redis of opened) redis.close();
  stopRedis();
});

describeWithRedis('runs in a cluster', () => {
  test('are read, kept, stopped and forgotten on all masters', async () => {
    const [here, there] = stores as [RunStore, RunStore];
    const stopped: string[] = [];
    there.listen((conversation) => stopped.push(conversation));
    for (let n = 0; n < 12; n++) {
      const conversation = `conversation-${n}`;
      const name = nameOf(`k${n}`, { conversation });
      const run = await begunRun(here, name);
      const { sink } = joinedRun(there, run);
      say(run, 'data: 1\n\n');
      await complete(run);
      expect(await endOf(sink)).toBe('complete');
      expect(sink.text).toBe('data: 1\n\n');
      expect(await there.find(name)).toMatchObject({ state: 'kept', id: run.id });
      const { id, name: waiting } = await claimedRun(here, nameOf(`waiting${n}`, { conversation }));
      expect(await there.stop(conversation)).toBe(1);
      // It has waited for longer than a round trip takes.
      const waitsSince = performance.now() - 10_000;
      expect(await here.confirm({ id, name: waiting, conversation, waitsSince })).toBe('stopped');
      await there.forget(conversation);
      expect(await here.find(name)).toEqual({ state: 'free' });
    }
    await until(() => stopped.length > 0);
  });
});
