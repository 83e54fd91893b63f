import type { Redis } from '../storage/redis.ts';

/** A lease: its id, and the key of its holder's sorted set. */
export type Lease = readonly [id: string, key: string];

/** Changes leases in Redis. All methods reject if Redis fails or does not answer. */
export interface LeaseScripts {
  /** Adds a lease unless its holder has `max` already; returns whether it was added. */
  add(lease: Lease, max: number): Promise<boolean>;
  /** Extends leases; a lease that Redis has lost is added again. */
  renew(leases: readonly Lease[]): Promise<unknown>;
  /** Removes leases. */
  forget(leases: readonly Lease[]): Promise<unknown>;
}

/** How many leases are changed at once. */
const BATCH = 500;

/** The scripts for leases that end `leaseMs` after they were added or renewed, by Redis's own clock. */
export function leaseScripts(redis: Redis, leaseMs: number): LeaseScripts {
  const add = redis.script(ADD);
  const renew = redis.script(RENEW);
  return {
    add: async ([id, key], max) => (await add([key], [String(leaseMs), id, String(max)])) === 1,
    renew: (leases) => forEachKey(leases, (key, ids) => renew([key], [String(leaseMs), ...ids])),
    forget: (leases) => forEachKey(leases, (key, ids) => redis.run((client) => client.zRem(key, ids))),
  };
}

/** A copy of the leases in batches of at most `BATCH`; `leases` has the holder's key by lease id. */
export function batches(leases: ReadonlyMap<string, string>): Lease[][] {
  const all = [...leases];
  return Array.from({ length: Math.ceil(all.length / BATCH) }, (_, n) =>
    all.slice(n * BATCH, (n + 1) * BATCH),
  );
}

/** One command for each key, all in one flight: in a cluster, the keys are on several servers. */
function forEachKey(
  leases: readonly Lease[],
  change: (key: string, ids: string[]) => Promise<unknown>,
): Promise<unknown> {
  const byKey = Map.groupBy(leases, ([, key]) => key);
  return Promise.all(
    [...byKey].map(([key, same]) =>
      change(
        key,
        same.map(([id]) => id),
      ),
    ),
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

/** Extends each lease ARGV[i], from the second on; a lease that Redis has lost is added again. */
const RENEW = `${NOW}
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
`;
