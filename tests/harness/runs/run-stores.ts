import { Problem } from '../../../src/errors.ts';
import { MemoryRunStore } from '../../../src/runs/memory-run-store.ts';
import { redisRunStore } from '../../../src/runs/redis-run-store.ts';
import type { RunName } from '../../../src/runs/run-name.ts';
import type { RunLeases, RunStore, RunTimes } from '../../../src/runs/run-store.ts';
import type { Redis } from '../../../src/storage/redis.ts';
import { until } from '../clock/until.ts';
import { connected, startRedis } from '../redis/redis.ts';
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

export interface OpenOptions {
  readonly times?: Partial<RunTimes>;
  readonly leases?: Partial<RunLeases>;
  readonly maxBytes?: number;
  /** Lies between the store and Redis. */
  readonly fault?: FaultyRedis;
}

/** The stores of several instances. */
export interface RunStores {
  open(options?: OpenOptions): Promise<RunStore>;
  /** Closes all stores, and forgets what they have stored. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

/** In memory there is one instance: all that are opened are the same store. */
export async function memoryStores(): Promise<RunStores> {
  let store: MemoryRunStore | undefined;
  return {
    async open({ times } = {}) {
      store ??= new MemoryRunStore({ ...TIMES, ...times });
      return store;
    },
    async reset() {
      store = undefined;
    },
    async close() {},
  };
}

/** The stored value of a name, with its lease ended. */
export const withoutLease = (value: string) => value.split(' ').with(3, '1').join(' ');

export type RedisStores = Awaited<ReturnType<typeof redisStores>>;

/** A Redis of its own, and stores there. */
export async function redisStores() {
  const { url, command, stop } = await startRedis();
  const opened: Redis[] = [];
  const namesOf = ({ conversation }: RunName) => `bot-relay:{${conversation}}:names`;
  const textOf = async (name: RunName) => String(await command('HGET', namesOf(name), name.key));
  return {
    command,
    /** What is stored of a name: its state, and until when it is leased, by Redis's clock. */
    async stored(name: RunName) {
      const [, state, , lease] = (await textOf(name)).split(' ');
      return { state, lease: Number(lease) };
    },
    /** The instance behind `fault` is lost for so long that its lease of the name is over. */
    async lose(fault: FaultyRedis, name: RunName) {
      await fault.freeze();
      await command('HSET', namesOf(name), name.key, withoutLease(await textOf(name)));
    },
    async open({ times, leases, maxBytes = 1 << 20, fault }: OpenOptions = {}): Promise<RunStore> {
      const redis = await connected(url);
      opened.push(redis);
      return redisRunStore(fault?.through(redis) ?? redis, runSealer, {
        ...{ times: { ...TIMES, ...times }, leases: { ...LEASES, ...leases }, maxBytes },
      });
    },
    async reset() {
      for (const redis of opened.splice(0)) redis.close();
      await command('FLUSHALL');
    },
    close: stop,
  };
}

/** Lies between one instance and its Redis, and lets scripts go wrong there. */
export class FaultyRedis {
  /** How many scripts were answered, and how many have failed. */
  answers = 0;
  failures = 0;
  private now: 'well' | 'unanswered' | 'away' | 'frozen' = 'well';
  private running = 0;
  private thawed = Promise.withResolvers<void>();

  get state() {
    return this.now;
  }

  /**
   * `well`; `unanswered`: scripts are run, and fail all the same; `away`: they fail; `frozen`: they wait, as in a
   * process that was stopped, until it is `well` again.
   */
  set state(to) {
    this.now = to;
    this.thawed.resolve();
    this.thawed = Promise.withResolvers();
  }

  /** Freezes it. Resolves when nothing more of it is under way. */
  async freeze(): Promise<void> {
    this.state = 'frozen';
    await until(() => this.running === 0);
  }

  through(redis: Redis): Redis {
    return {
      ...redis,
      script: (lua) => {
        const run = redis.script(lua);
        return async (keys, args) => {
          await this.passes('away');
          this.running += 1;
          const answer = await run(keys, args).finally(() => {
            this.running -= 1;
          });
          await this.passes('unanswered');
          this.answers += 1;
          return answer;
        };
      },
    };
  }

  private async passes(fault: 'away' | 'unanswered'): Promise<void> {
    while (this.now === 'frozen') await this.thawed.promise;
    if (this.now !== fault) return;
    this.failures += 1;
    throw new Problem('session_store_unavailable', 'Redis is away.');
  }
}
