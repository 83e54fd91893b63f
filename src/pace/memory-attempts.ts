import type { AttemptCounts } from './attempts.ts';

interface Counted {
  failures: number;
  /** When these are forgotten, in ms since the epoch. */
  resetAt: number;
  underWay: number;
}

/** Attempts of this process alone. */
export const memoryAttempts: AttemptCounts = ({ maxFailures, windowMs }) => {
  const keys = new Map<string, Counted>();

  /** What is known of `key` now. */
  function counted(key: string): Counted {
    const known = keys.get(key) ?? { failures: 0, resetAt: 0, underWay: 0 };
    if (known.resetAt <= Date.now()) known.failures = 0;
    return known;
  }

  function forgetIfEmpty(key: string): void {
    const { failures, underWay } = counted(key);
    if (failures + underWay === 0) keys.delete(key);
  }

  function addFailure(key: string, known: Counted): void {
    if (known.failures === 0) {
      known.resetAt = Date.now() + windowMs;
      setTimeout(() => forgetIfEmpty(key), windowMs + 1).unref();
    }
    known.failures += 1;
  }

  return {
    async failures(key) {
      const { failures: count, resetAt } = counted(key);
      return { count, resetMs: Math.max(0, resetAt - Date.now()) };
    },
    async begin(key) {
      const known = counted(key);
      if (known.failures >= maxFailures) return { state: 'refused', resetMs: known.resetAt - Date.now() };
      if (known.failures + known.underWay >= maxFailures) return { state: 'wait' };
      known.underWay += 1;
      keys.set(key, known);
      let underWay = true;
      const end = () => {
        if (underWay) known.underWay -= 1;
        underWay = false;
        forgetIfEmpty(key);
      };
      const failed = async () => {
        addFailure(key, counted(key));
        end();
      };
      return { state: 'begun', attempt: { failed, end } };
    },
  };
};
