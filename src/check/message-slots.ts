import { rateLimitOf } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import { spaced } from '../pace/budgets.ts';
import { memoryBudgets } from '../pace/memory-budgets.ts';
import { redisBudgets } from '../pace/redis-budgets.ts';
import { type SlotWaits, slotWaits } from '../pace/slot-waits.ts';
import type { Redis } from '../storage/redis.ts';

/** How long a message of the check may wait for its slot, in ms: nobody is waiting for its answer. */
const MAX_WAIT_MS = 30_000;

/**
 * The slots that the check's own messages wait for. With Redis they come out of the budget that all instances
 * share, so that the service never sees too many; without it, what the relay sends is not known, and the check
 * sends one message in each window.
 */
export function messageSlots({ rate, upstream }: Config, redis: Redis | undefined): SlotWaits {
  const limitOf = (bot: string) => rateLimitOf(upstream, bot);
  const ours = redis ? { ...rate, limitOf } : { limit: 1, windowMs: rate.windowMs };
  const budgets = redis ? redisBudgets(redis, spaced(ours)) : memoryBudgets(spaced(ours));
  return slotWaits(budgets, { ...spaced(ours), maxWaitMs: MAX_WAIT_MS });
}
