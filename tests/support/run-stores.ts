import { afterEach, beforeEach } from '@jest/globals';
import type { JoinableOptions, RunStore } from '../../src/join/joinable-runs.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { RunName } from '../../src/join/run-name.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { connected, type RedisServer, startRedis } from './redis.ts';
import { runSealer } from './run-sealer.ts';

/** What the stores of several instances are opened with. */
const RUN_OPTIONS: JoinableOptions = {
  times: { keepMs: 5_000, rememberMs: 5_000, graceMs: 0 },
  ...{ maxBytes: 65_536, maxExecutionMs: 1_000, budget: heldBytes(1 << 24) },
  onLeft() {},
  onMoved() {},
};

export const RUN_NAME: RunName = { conversation: 'c', message: 'm', key: 'k', isKept: true };

/** A Redis for each test of the file, and the stores of runs that are opened there; all end with the test. */
export function runStores() {
  let server: RedisServer;
  let opened: { readonly redis: Redis; readonly store: RunStore }[];
  beforeEach(async () => {
    opened = [];
    server = await startRedis();
  });
  afterEach(async () => {
    for (const { store } of opened) await store.close();
    for (const { redis } of opened) redis.close();
    await server.stop();
  });
  return {
    server: () => server,
    /** Opens the store of one more instance. `observe` may put something between the store and Redis. */
    async open(sealer = runSealer, observe = (redis: Redis) => redis) {
      const redis = await connected(server.url);
      const store = redisRuns(observe(redis), sealer);
      opened.push({ redis, store });
      return { runs: store.open(RUN_OPTIONS), redis };
    },
  };
}
