import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from './redis.ts';

/** How long Redis may take to answer, in ms. */
const CONNECT_MS = 3_000;
const PING_EVERY_MS = 50;

/**
 * Resolves when Redis answers; for programs that use Redis as soon as they start.
 * @throws Problem `session_store_unavailable` if it does not answer within 3 seconds
 */
export async function whenConnected(redis: Redis): Promise<void> {
  const deadline = performance.now() + CONNECT_MS;
  for (;;) {
    try {
      await redis.onEach((server) => server.ping());
      return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(PING_EVERY_MS);
    }
  }
}
