import { setTimeout as wait } from 'node:timers/promises';

/** Longer than any test takes. */
const PATIENCE_MS = 120_000;

/**
 * Resolves as soon as `condition` holds, which is asked every `everyMs`; throws if it never does. The wait of a test
 * that has failed meanwhile does not keep the process alive.
 */
export async function until(condition: () => boolean | Promise<boolean>, everyMs = 5): Promise<void> {
  // No clock is read: a test may have moved it.
  for (let waitedMs = 0; !(await condition()); waitedMs += everyMs) {
    if (waitedMs > PATIENCE_MS) throw new Error(`never holds: ${condition}`);
    await pause(everyMs);
  }
}

/** Repeats `attempt` until it succeeds, as `until` does; throws its error if it never does. Resolves with its result. */
export async function eventually<T>(attempt: () => Promise<T>, everyMs = 20): Promise<T> {
  for (let waitedMs = 0; ; waitedMs += everyMs) {
    try {
      return await attempt();
    } catch (error) {
      if (waitedMs > PATIENCE_MS) throw error;
    }
    await pause(everyMs);
  }
}

/** No test stops this timer. */
function pause(ms: number): Promise<void> {
  return wait(ms, undefined, { ref: false });
}
