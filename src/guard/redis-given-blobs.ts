import type { Redis } from '../storage/redis.ts';
import { keyPart } from '../storage/redis-key.ts';
import { type GivenBlobs, KEPT_MS, MAX_KEPT } from './conversation-blobs.ts';

/** Adds ids to a set that is sorted by when they came, on Redis's own clock, and drops the oldest. */
const REMEMBER = `
local time = redis.call('TIME')
for i = 3, #ARGV do redis.call('ZADD', KEYS[1], time[1] * 1000000 + time[2] + i, ARGV[i]) end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`;

/** The files of all instances. @throws Problem `session_store_unavailable` */
export function redisGivenBlobs(redis: Redis): GivenBlobs {
  const remember = redis.script(REMEMBER);
  const nameOf = (ownerKey: string) => `bot-relay:blobs:${keyPart(ownerKey)}`;
  return {
    async remember(ownerKey, ids) {
      await remember([nameOf(ownerKey)], [String(MAX_KEPT), String(KEPT_MS), ...ids]);
    },
    async areGiven(ownerKey, ids) {
      const scores = await redis.run((client) => client.zmScore(nameOf(ownerKey), [...ids]));
      return scores.every((score) => score !== null);
    },
  };
}
