import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { describe } from '@jest/globals';
import { createLogger } from '../../../src/logger.ts';
import { secret } from '../../../src/secret.ts';
import { openRedis, type Redis } from '../../../src/storage/redis.ts';
import { sleep } from '../clock/sleep.ts';

export { type RedisServer, startRedis, stopRedis } from './redis-server.ts';

// Without a process, which would be one for each test file.
const installed = (process.env.PATH ?? '')
  .split(delimiter)
  .some((folder) => existsSync(join(folder, 'redis-server')));
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

/** Connects to the server at `url`; resolves when it answers. A busy machine is no slow Redis: a command has 20 s by default. */
export function connected(url: string, commandTimeoutMs = 20_000): Promise<Redis> {
  return answering(openRedis({ url: secret(url), logger: createLogger('silent'), commandTimeoutMs }));
}
