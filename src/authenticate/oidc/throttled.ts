import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Wraps `work` so that it starts at most once in `everyMs`. Calls that come while it runs, or waits to start, share its
 * result. Rejects as the work does.
 */
export function throttled<T>(work: () => Promise<T>, everyMs: number): () => Promise<T> {
  let nextAt = Number.NEGATIVE_INFINITY;
  let running: Promise<T> | undefined;

  async function run(): Promise<T> {
    try {
      const waitMs = nextAt - performance.now();
      if (waitMs > 0) await sleep(waitMs);
      nextAt = performance.now() + everyMs;
      return await work();
    } finally {
      running = undefined;
    }
  }

  return () => {
    running ??= run();
    return running;
  };
}
