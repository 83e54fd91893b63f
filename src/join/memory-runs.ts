import type { RunStore } from './joinable-runs.ts';
import { openRuns } from './runs.ts';

/** Runs and their names in the memory of this process. */
export function memoryRuns(): RunStore {
  return {
    open(options) {
      const runs = openRuns(options);
      return {
        async enter(name, { lastEventId, requestId, progress, granted, join, begin }) {
          await granted;
          const found = runs.find(name, lastEventId);
          if (found) return join(found);
          return lastEventId === undefined ? begin(runs.claim(name, { requestId, progress })) : undefined;
        },
        newest: async ({ message }, { lastEventId, join }) => join(runs.findNewest(message, lastEventId)),
        forget: async (conversation, except) => runs.forget(conversation, except),
        whenTaken() {},
      };
    },
    storedBytes: async () => 0,
    areShared: false,
    mayBeReadElsewhere: () => false,
    async handOver() {},
    async close() {},
  };
}
