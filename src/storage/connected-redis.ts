import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from './redis.ts';

/** How long Redis may take to be there, in ms. */
const CONNECT_MS = 3_000;
const RETRY_MS = 50;

/**
 * Resolves when Redis answers; for commands, which begin before the connection is there.
 * @throws Problem `session_store_unavailable` if it does not answer within 3 seconds
 */
export async function whenConnected(redis: Redis): Promise<void> {
  const deadline = performance.now() + CONNECT_MS;
  for (;;) {
    try {
      await redis.run((client) => client.ping());
      return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(RETRY_MS);
    }
  }
}
