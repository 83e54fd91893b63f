import { rateLimitOf } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import { withJitterMargin } from '../pace/budgets.ts';
import { memoryBudgets } from '../pace/memory-budgets.ts';
import { redisBudgets } from '../pace/redis-budgets.ts';
import { type SlotWaits, slotWaits } from '../pace/slot-waits.ts';
import type { Redis } from '../storage/redis.ts';

/** How long a message of the check may wait for its slot, in ms. It may be long, since no user waits for the answer. */
const MAX_WAIT_MS = 30_000;

/**
 * Makes the slots for the check's own messages. With Redis they are taken from the budget that all instances share, so
 * that the service never gets too many messages. Without Redis the check does not know how many messages the relay
 * sends, so it sends only one in each window.
 */
export function messageSlots({ rate, upstream }: Config, redis: Redis | undefined): SlotWaits {
  const limitOf = (bot: string) => rateLimitOf(upstream, bot);
  const rateOfCheck = redis ? { ...rate, limitOf } : { limit: 1, windowMs: rate.windowMs };
  const budgets = redis
    ? redisBudgets(redis, withJitterMargin(rateOfCheck))
    : memoryBudgets(withJitterMargin(rateOfCheck));
  return slotWaits(budgets, { ...withJitterMargin(rateOfCheck), maxWaitMs: MAX_WAIT_MS });
}
