import { turn } from './waiting-lines.ts';

/** Runs a piece of work when its turn comes. Rejects with the signal's reason if that aborts before. */
export type InTurn = <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>;

/**
 * Makes the function that runs pieces of work, at most `most` of them at a time, the others in the order in which they
 * came. Resolves or rejects as the work does.
 */
export function fewAtOnce(most: number): InTurn {
  const waiting: (() => void)[] = [];
  let places = most;
  return async function run(work, signal) {
    if (places > 0) places -= 1;
    else await turn(waiting, signal);
    try {
      signal.throwIfAborted();
      return await work();
    } finally {
      // The place goes from hand to hand: nobody who comes now gets in front of those who wait.
      const next = waiting.shift();
      if (next) next();
      else places += 1;
    }
  };
}
