import { Problem } from '../../../src/errors.ts';
import type { Redis } from '../../../src/storage/redis.ts';
import { until } from '../clock/until.ts';

/** Lies between one instance and its Redis, and lets scripts go wrong there. */
export interface FaultyRedis {
  readonly through: (redis: Redis) => Redis;
  /**
   * `well`; `unanswered`: they are run, and fail all the same; `away`: they fail; `frozen`: they wait, as in a process
   * that was stopped, until it is `well` again.
   */
  state: 'well' | 'unanswered' | 'away' | 'frozen';
  /** Freezes it. Resolves when nothing more of it is under way. */
  freeze(): Promise<void>;
  /** How many scripts were answered, and how many have failed. */
  readonly answers: number;
  readonly failures: number;
}

/** Makes the fault. */
export function faultyRedis(): FaultyRedis {
  const now: { state: FaultyRedis['state'] } = { state: 'well' };
  let failures = 0;
  let answers = 0;
  let running = 0;
  let thawed = Promise.withResolvers<void>();
  const away = () => {
    failures += 1;
    return new Problem('session_store_unavailable', 'Redis is away.');
  };
  return {
    get state() {
      return now.state;
    },
    set state(to) {
      now.state = to;
      thawed.resolve();
      thawed = Promise.withResolvers();
    },
    async freeze() {
      now.state = 'frozen';
      await until(() => running === 0);
    },
    get answers() {
      return answers;
    },
    get failures() {
      return failures;
    },
    through: (redis) => ({
      ...redis,
      script(lua) {
        const run = redis.script(lua);
        const whenThawed = async () => {
          while (now.state === 'frozen') await thawed.promise;
        };
        return async (keys, args) => {
          await whenThawed();
          if (now.state === 'away') throw away();
          running += 1;
          const answer = await run(keys, args).finally(() => {
            running -= 1;
          });
          await whenThawed();
          if (now.state === 'unanswered') throw away();
          answers += 1;
          return answer;
        };
      },
    }),
  };
}
