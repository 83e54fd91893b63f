import { randomUUID } from 'node:crypto';
import { heldBytes } from '../../../src/relay/message/held-bytes.ts';
import { MemoryRunStore } from '../../../src/runs/memory-run-store.ts';
import { redisRunStore } from '../../../src/runs/redis-run-store.ts';
import { Run, type RunOptions } from '../../../src/runs/run.ts';
import type { RunName } from '../../../src/runs/run-name.ts';
import type { RunLeases, RunStore, RunTimes } from '../../../src/runs/run-store.ts';
import type { Redis } from '../../../src/storage/redis.ts';
import { connected, type RedisServer, startRedis } from '../redis/redis.ts';
import { runSealer } from '../relay/run-sealer.ts';

/** The times of the tests: what must not pass is long, what must is short. */
export const TIMES: RunTimes = {
  keepMs: 60_000,
  rememberMs: 60_000,
  maxWaitMs: 60_000,
  maxExecutionMs: 60_000,
};
export const LEASES: Partial<RunLeases> = {
  ...{ leaseMs: 60_000, renewMs: 20, batchMs: 1, pollMs: 20, followedMs: 2_000, calmMs: 200 },
};

/** The stores of several instances. */
export interface RunStores {
  open(options?: OpenOptions): Promise<RunStore>;
  close(): Promise<void>;
}

export interface OpenOptions {
  readonly times?: Partial<RunTimes>;
  readonly leases?: Partial<RunLeases>;
  readonly maxBytes?: number;
  /** Puts something between the store and Redis. */
  readonly through?: (redis: Redis) => Redis;
}

/** In memory there is one instance: all that are opened are the same store. */
export async function memoryStores(): Promise<RunStores> {
  let store: MemoryRunStore | undefined;
  return {
    async open({ times } = {}) {
      store ??= new MemoryRunStore({ ...TIMES, ...times });
      return store;
    },
    async close() {},
  };
}

export interface RedisStores extends RunStores {
  readonly server: RedisServer;
  readonly command: RedisServer['command'];
  /** What is stored of a name: its state, and until when it is leased, by Redis's clock. */
  stored(name: RunName): Promise<{ readonly state: string | undefined; readonly lease: number }>;
  /** Ends the lease of a name, as time does. Its instance must not renew it. */
  lapse(name: RunName): Promise<void>;
}

/** A Redis of its own, and stores there. */
export async function redisStores(...serverOptions: string[]): Promise<RedisStores> {
  const server = await startRedis(...serverOptions);
  const opened: { readonly redis: Redis; readonly store: RunStore }[] = [];
  const fieldsOf = async ({ conversation, key }: RunName) =>
    String(await server.command('HGET', `bot-relay:{${conversation}}:names`, key)).split(' ');
  return {
    ...{ server, command: server.command },
    async stored(name) {
      const [, state, , lease] = await fieldsOf(name);
      return { state, lease: Number(lease) };
    },
    async lapse(name) {
      const value = (await fieldsOf(name)).with(3, '1').join(' ');
      await server.command('HSET', `bot-relay:{${name.conversation}}:names`, name.key, value);
    },
    async open({ times, leases, maxBytes = 1 << 20, through = (redis: Redis) => redis } = {}) {
      const redis = await connected(server.url);
      const store = redisRunStore(through(redis), runSealer, {
        ...{ times: { ...TIMES, ...times }, leases: { ...LEASES, ...leases }, maxBytes },
      });
      opened.push({ redis, store });
      return store;
    },
    async close() {
      for (const { redis } of opened) redis.close();
      await server.stop();
    },
  };
}

/** A name; each part can be replaced. */
export function nameOf(key: string, changes: Partial<RunName> = {}): RunName {
  return { conversation: 'c', message: `message-of-${key}`, key, outlivesRun: true, ...changes };
}

/** A run with this name. */
export function runOf(name: RunName, changes: Partial<RunOptions> = {}): Run {
  return new Run({
    ...{ id: randomUUID(), name, requestId: `request-of-${name.key}`, conversation: name.conversation },
    ...{
      waitsSince: performance.now(),
      graceMs: 60_000,
      maxBytes: 1 << 20,
      bound: heldBytes(1 << 26),
      onEnd() {},
      onGrace() {},
    },
    ...changes,
  });
}
