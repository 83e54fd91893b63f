import { waitForTurn } from './queues.ts';

/** Runs `work` when there is a place for it. Rejects with the signal's reason if that aborts first. */
export type RunLimited = <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>;

/**
 * Makes the function that runs at most `max` pieces of work at a time; the others wait in the order of the calls. It
 * resolves or rejects as the work does.
 */
export function limitConcurrency(max: number): RunLimited {
  const waiting: (() => void)[] = [];
  let freePlaces = max;
  return async function run(work, signal) {
    if (freePlaces > 0) freePlaces -= 1;
    else await waitForTurn(waiting, signal);
    try {
      signal.throwIfAborted();
      return await work();
    } finally {
      // The next in the queue gets this place directly, so that a new call cannot overtake it.
      const next = waiting.shift();
      if (next) next();
      else freePlaces += 1;
    }
  };
}
