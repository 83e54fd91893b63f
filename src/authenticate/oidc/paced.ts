import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Makes the function that does a piece of work once for all who ask for it while it is done, and begins it at most
 * once in `everyMs`: whoever asks sooner waits until then. Rejects as the work does.
 */
export function paced<T>(work: () => Promise<T>, everyMs: number): () => Promise<T> {
  let nextAt = Number.NEGATIVE_INFINITY;
  let underWay: Promise<T> | undefined;

  async function run(): Promise<T> {
    try {
      const waitMs = nextAt - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      nextAt = performance.now() + everyMs;
      return await work();
    } finally {
      underWay = undefined;
    }
  }

  return () => {
    underWay ??= run();
    return underWay;
  };
}
