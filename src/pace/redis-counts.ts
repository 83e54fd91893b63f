import { RedisStore, type SendCommandFn } from 'rate-limit-redis';
import type { Redis, RedisScript } from '../storage/redis.ts';
import type { Counts } from './request-limits.ts';

/**
 * Counts in Redis, shared by all instances; each count is one round trip.
 * @throws Problem `session_store_unavailable` where a request cannot be counted
 */
export function redisCounts(redis: Redis): Counts {
  const sendCommand = commandsOver(redis);
  return (name) => new RedisStore({ prefix: `bot-relay:limit:${name}:`, sendCommand });
}

type CommandReply = Awaited<ReturnType<SendCommandFn>>;

/**
 * Runs the commands of the library's store through `redis`, with its deadline and its handling of scripts. The store
 * loads its scripts only once, when it is made, and keeps failing if Redis is away then. Here, loading sends nothing,
 * and a script is sent whenever Redis does not know it.
 */
function commandsOver(redis: Redis): SendCommandFn {
  const scripts = new Map<string, RedisScript>();
  return async (command, ...args) => {
    const [first = '', second = '', ...rest] = args;
    if (command === 'SCRIPT') {
      // SCRIPT LOAD: the store calls the script by the name that this returns; here it is the text itself.
      scripts.set(second, redis.script(second));
      return second;
    }
    const script = command === 'EVALSHA' && scripts.get(first);
    if (script)
      return (await script(rest.slice(0, Number(second)), rest.slice(Number(second)))) as CommandReply;
    return redis.run((client) => (command === 'DECR' ? client.decr(first) : client.del(first)));
  };
}
