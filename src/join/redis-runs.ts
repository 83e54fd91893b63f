import type { Redis } from '../storage/redis.ts';
import type { JoinableOptions, RunStore } from './joinable-runs.ts';
import { type RunCalls, runCalls } from './run-calls.ts';
import { type RunCodec, type RunSealer, runCodec } from './run-codec.ts';
import { ENTER, FLUSH, FORGET, NEWEST, READ, SESSION_ENDED, TAKE_OVER } from './run-lua.ts';
import { NEWS, SIZES } from './run-lua-common.ts';
import { type SharedRuns, sharedRuns } from './shared-runs.ts';

const MAX_NAMES = 1_000_000;
/** What all logs in Redis take, sealed. */
const MAX_BYTES = 256 << 20;
/** How much longer than it can take, and is kept, a run is there if nobody ends it, in ms. */
const LIFE_MARGIN_MS = 600_000;

/** Runs and their names in Redis, for all instances. */
export function redisRuns(redis: Redis, sealerOf: (run: string) => RunSealer): RunStore {
  let opened: SharedRuns | undefined;
  return {
    open(options) {
      const codec = runCodec(sealerOf);
      const calls = callsOn(redis, options, codec);
      opened = sharedRuns({ ...options, calls, codec });
      void redis.subscribe(NEWS, opened.onNews, opened.onListening);
      return opened.runs;
    },
    async storedBytes() {
      return opened ? Number(await redis.run((client) => client.hGet(SIZES, 'all'))) : 0;
    },
    areReadElsewhere: () => opened?.areReadElsewhere() ?? false,
    handOver: async () => opened?.handOver(),
    close: async () => opened?.close(),
  };
}

function callsOn(redis: Redis, options: JoinableOptions, codec: RunCodec): RunCalls {
  const { maxBytes, maxNames, maxExecutionMs, maxStoredBytes } = options;
  const { keepMs, rememberMs } = options.times;
  const scripts = {
    enter: redis.script(ENTER),
    newest: redis.script(NEWEST),
    forget: redis.script(FORGET),
    flush: redis.script(FLUSH),
    read: redis.script(READ),
    sessionEnded: redis.script(SESSION_ENDED),
    takeOver: redis.script(TAKE_OVER),
  };
  const lifeMs = maxExecutionMs + keepMs + LIFE_MARGIN_MS;
  const bounds = {
    ...{ keepMs, rememberMs, lifeMs, maxBytes, maxBytesInAll: maxStoredBytes ?? MAX_BYTES },
    maxNames: maxNames ?? MAX_NAMES,
  };
  return runCalls(scripts, bounds, codec);
}
