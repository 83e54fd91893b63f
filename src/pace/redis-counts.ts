import { RedisStore, type SendCommandFn } from 'rate-limit-redis';
import type { Redis, RedisScript } from '../storage/redis.ts';
import type { Counts } from './request-limits.ts';

/**
 * Counts in Redis, shared by all instances; each is asked in one round trip.
 * @throws Problem `session_store_unavailable` where a request cannot be counted
 */
export function redisCounts(redis: Redis): Counts {
  const sendCommand = commandsOver(redis);
  return (name) => new RedisStore({ prefix: `bot-relay:limit:${name}:`, sendCommand });
}

type Reply = Awaited<ReturnType<SendCommandFn>>;

/**
 * The commands of the library's store, with the deadline of `redis` and its way with scripts. The store would load
 * them when it is made, and never again if Redis is not there then; here loading asks nothing of Redis, and
 * a script is sent whenever Redis does not know it.
 */
function commandsOver(redis: Redis): SendCommandFn {
  const scripts = new Map<string, RedisScript>();
  return async (command, ...args) => {
    const [first = '', second = '', ...rest] = args;
    if (command === 'SCRIPT') {
      // LOAD: the store calls the script by what this returns, which may be its text.
      scripts.set(second, redis.script(second));
      return second;
    }
    const script = command === 'EVALSHA' && scripts.get(first);
    if (script) return (await script(rest.slice(0, Number(second)), rest.slice(Number(second)))) as Reply;
    return redis.run((client) => client.sendCommand([command, ...args])) as Promise<Reply>;
  };
}
