import type { Redis } from '../storage/redis.ts';
import type { JoinableOptions, RunStore } from './joinable-runs.ts';
import { type RunCalls, runCalls } from './run-calls.ts';
import { type RunCodec, type RunSealers, runCodec } from './run-codec.ts';
import { ENTER, FLUSH, FORGET, NEWEST, READ, SESSION_ENDED, TAKE_OVER } from './run-lua.ts';
import { ALL, NEWS, sizesOf } from './run-lua-common.ts';
import { type RunParts, runParts } from './run-parts.ts';
import { type SharedRuns, sharedRuns } from './shared-runs.ts';

const MAX_NAMES = 1_000_000;
/** What all logs in Redis take, sealed. */
const MAX_BYTES = 256 << 20;
/** How much longer than it can take, and is kept, a run is there if nobody ends it, in ms. */
const LIFE_MARGIN_MS = 600_000;

/** Runs and their names in Redis, for all instances. */
export function redisRuns(redis: Redis, sealerOf: RunSealers): RunStore {
  const parts = runParts(redis.isCluster);
  let opened: SharedRuns | undefined;
  return {
    open(options) {
      const codec = runCodec(sealerOf);
      const calls = callsOn({ redis, parts }, options, codec);
      opened = sharedRuns({ ...options, calls, codec });
      void redis.subscribe(NEWS, opened.onNews, opened.onListening);
      return opened.runs;
    },
    async storedBytes() {
      if (!opened) return 0;
      const sizes = await redis.run((client) =>
        Promise.all(parts.keys.map((key) => client.hGet(sizesOf(key), ALL))),
      );
      return sizes.reduce((sum, size) => sum + Number(size), 0);
    },
    areShared: true,
    mayBeReadElsewhere: () => opened?.mayBeReadElsewhere() ?? false,
    handOver: async () => opened?.handOver(),
    close: async () => opened?.close(),
  };
}

function callsOn(
  { redis, parts }: { readonly redis: Redis; readonly parts: RunParts },
  options: JoinableOptions,
  codec: RunCodec,
): RunCalls {
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
    ...{ keepMs, rememberMs, lifeMs, maxBytes, parts },
    maxBytesInAll: Math.floor((maxStoredBytes ?? MAX_BYTES) / parts.keys.length),
    maxNames: Math.floor((maxNames ?? MAX_NAMES) / parts.keys.length),
  };
  return runCalls(scripts, bounds, codec);
}
