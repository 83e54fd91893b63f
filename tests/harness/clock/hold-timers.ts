import { jest } from '@jest/globals';
import { advanceClocks } from './advance-clocks.ts';

/**
 * Watches the timers of `ms`, a time that nothing else uses and that is longer than any test. The returned function makes
 * them due at once; `jest.restoreAllMocks()` ends it.
 */
export function holdTimers(ms: number): () => void {
  const set = jest.spyOn(globalThis, 'setTimeout');
  return () => {
    const due = set.mock.calls.flatMap(([run, after], n) => {
      if (after !== ms) return [];
      clearTimeout(set.mock.results[n]?.value as NodeJS.Timeout);
      return [run as () => void];
    });
    if (due.length === 0) throw new Error(`there is no timer of ${ms} ms`);
    advanceClocks({ monotonic: ms });
    for (const run of due) run();
  };
}
