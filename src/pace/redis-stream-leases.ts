import { randomUUID } from 'node:crypto';
import type { Redis, RedisScript } from '../storage/redis.ts';
import { keyPart } from '../storage/redis-key.ts';
import type { StreamLeases } from './stream-leases.ts';

/** Times in ms. */
export interface LeaseTimes {
  /** How long a place stays taken when the instance that holds it says nothing more. */
  readonly leaseMs: number;
  /** How often an instance says so. */
  readonly renewMs: number;
}

/** Two renewals may fail before a stream that goes on is not counted. */
const TIMES: LeaseTimes = { leaseMs: 10_000, renewMs: 3_000 };
/** How long after a failure Redis is told again what was given back, in ms. */
const RETRY_MS = 500;
/** Leases that one run of a script changes: Redis does nothing else meanwhile. */
const BATCH = 500;

/**
 * The open streams over all instances. A lease is a member of its holder's sorted set, by the time at which it expires
 * on Redis's own clock. An instance renews all that it holds; those of one that died expire. While Redis is away,
 * open streams go on; when it is back, they are counted again, and what was given back meanwhile is free.
 */
export function redisStreamLeases(redis: Redis, times: LeaseTimes = TIMES): StreamLeases {
  const add = redis.script(ADD);
  const renew = redis.script(RENEW);
  const forget = redis.script(FORGET);
  const leaseMs = String(times.leaseMs);
  /** What this instance holds: the holder's key of each lease. */
  const held = new Map<string, string>();
  /** The same of what was given back without Redis's knowledge: no more than messages ended while it was away. */
  const unheard = new Map<string, string>();
  const releases = new Set<Promise<unknown>>();
  let timer: NodeJS.Timeout | undefined;
  let retry: NodeJS.Timeout | undefined;
  let closed = false;

  async function renewAll(): Promise<void> {
    for (const batch of batches(held)) {
      // Not those that were released while the batch before was under way.
      const leases = batch.filter(([id]) => held.has(id));
      try {
        await change(renew, leases, leaseMs);
      } finally {
        // What was released meanwhile may have been renewed after that.
        for (const [id, key] of leases) if (!held.has(id)) giveBack(key, id);
      }
    }
  }

  function hold(key: string, id: string): void {
    held.set(id, key);
    // What fails is done next time.
    timer ??= setInterval(() => renewAll().catch(() => {}), times.renewMs).unref();
  }

  function release(key: string, id: string): void {
    held.delete(id);
    if (held.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
    giveBack(key, id);
  }

  function giveBack(key: string, id: string): void {
    const done = redis
      .run((client) => client.zRem(key, id))
      .catch(() => {
        unheard.set(id, key);
        tellLater();
      });
    releases.add(done);
    done.then(() => releases.delete(done));
  }

  async function tellAgain(): Promise<void> {
    for (const batch of batches(unheard)) {
      await change(forget, batch);
      for (const [id] of batch) unheard.delete(id);
    }
  }

  function tellLater(): void {
    if (closed || unheard.size === 0) return;
    retry ??= setTimeout(async () => {
      await tellAgain().catch(() => {});
      retry = undefined;
      tellLater();
    }, RETRY_MS).unref();
  }

  return {
    async acquire(holder, max) {
      const key = `bot-relay:streams:${keyPart(holder)}`;
      const id = randomUUID();
      try {
        if ((await add([key], [leaseMs, id, String(max)])) !== 1) return undefined;
      } catch (error) {
        // Redis may have added it all the same, or may still do so.
        release(key, id);
        throw error;
      }
      hold(key, id);
      return {
        release() {
          if (held.has(id)) release(key, id);
        },
      };
    },
    async close() {
      closed = true;
      clearTimeout(retry);
      await Promise.all(releases);
      // If Redis does not hear this either, the leases expire.
      await tellAgain().catch(() => {});
    },
  };
}

/** Leases by their ids, with the holder's key of each. */
type Leases = [id: string, key: string][];

function batches(leases: ReadonlyMap<string, string>): Leases[] {
  const all = [...leases];
  return Array.from({ length: Math.ceil(all.length / BATCH) }, (_, n) =>
    all.slice(n * BATCH, (n + 1) * BATCH),
  );
}

function change(script: RedisScript, leases: Leases, ...args: string[]): Promise<unknown> {
  return script(
    leases.map(([, key]) => key),
    [...args, ...leases.map(([id]) => id)],
  );
}

const NOW = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
`;

/** Adds the lease ARGV[2] for ARGV[1] ms unless there are ARGV[3] already; returns how many were added. */
const ADD = `${NOW}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
`;

/** Moves the end of each lease ARGV[i + 1] of KEYS[i]; what Redis has lost is there again. */
const RENEW = `${NOW}
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + ARGV[1], ARGV[i + 1])
  redis.call('PEXPIRE', key, ARGV[1])
end
`;

/** Takes each lease ARGV[i] out of KEYS[i]. */
const FORGET = `
for i, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[i]) end
`;
