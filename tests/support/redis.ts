import { spawnSync } from 'node:child_process';
import { describe } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { sleep } from './sleep.ts';

export { type RedisServer, startRedis, stopRedis } from './redis-server.ts';

const installed = spawnSync('redis-server', ['--version']).status === 0;
if (!installed)
  process.stderr.write('Tests with Redis are skipped; to run them: apt-get install redis-server\n');

/** A `describe` for tests that need the `redis-server` program. */
export const describeWithRedis = installed ? describe : describe.skip;

/** Resolves once `redis` answers. */
export async function answering(redis: Redis): Promise<Redis> {
  for (;;) {
    try {
      await redis.onEach((server) => server.ping());
      return redis;
    } catch {
      await sleep(10);
    }
  }
}

/** Connects to the server at `url`; resolves when it answers. */
export function connected(url: string): Promise<Redis> {
  return answering(openRedis({ url: secret(url), logger: createLogger('silent') }));
}
