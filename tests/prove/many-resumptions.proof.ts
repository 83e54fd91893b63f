import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { withJitterMargin } from '../../src/pace/budgets.ts';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { range } from '../harness/relay/numbered-messages.ts';
import { NEW_MESSAGES, startApart, startCrowd } from '../harness/relay/resumption-crowd.ts';

/** How often each is shown. */
const ROUNDS = Number(process.env.ROUNDS ?? 1);
/** The bot service's own limit, and the default wait of a message for its slot. */
const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 10_000 };
const KEPT = withJitterMargin(RATE);
const ROUND_MS = 30_000;

// `pacing.test.ts` shows the same of one instance.
describeWithRedis('300 resumptions in three instances with one Redis', () => {
  const connections: Redis[] = [];
  beforeAll(async () => {
    const { url } = await startRedis();
    for (const _ of range(3)) connections.push(await connected(url));
  });
  afterAll(() => {
    for (const redis of connections) redis.close();
    stopRedis();
  });
  const instances = () => connections.map((redis) => redisBudgets(redis, KEPT));

  test.each([1, 20])(
    'let 20 new messages of %d users start within 10 s, and take every second slot at most',
    async (newUsers) => {
      for (const round of range(ROUNDS)) {
        const crowd = { instances: instances(), rate: RATE, newUsers, endpoint: `acme/${newUsers}-${round}` };
        const { refused, lastNewMs, resumptions, messages } = await startCrowd(crowd);
        const seconds = (lastNewMs / 1000).toFixed(1);
        process.stderr.write(
          `${newUsers} users: ${seconds} s, ${resumptions} resumptions beside ${messages}\n`,
        );
        expect([refused, messages]).toEqual([0, NEW_MESSAGES]);
        expect(lastNewMs).toBeLessThan(RATE.maxWaitMs);
        expect(resumptions).toBeLessThanOrEqual(messages);
      }
    },
    ROUNDS * ROUND_MS,
  );

  test(
    'use nine of ten slots that messages get elsewhere, if nobody else waits',
    async () => {
      const { resumptions, messages } = await startApart(instances(), RATE, 10);
      process.stderr.write(`alone: ${resumptions} in 10 s, and ${messages} messages elsewhere\n`);
      // On a quiet machine it is 50.
      expect(messages).toBeGreaterThanOrEqual(20);
      expect(resumptions).toBeGreaterThanOrEqual(0.9 * messages);
    },
    ROUND_MS,
  );
});
