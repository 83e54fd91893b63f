import type { AttemptCounts } from './attempts.ts';

interface AttemptState {
  failures: number;
  /** When the failures are forgotten, in ms since the epoch. */
  resetAt: number;
  running: number;
}

/** Counts the attempts of this process only. */
export const memoryAttempts: AttemptCounts = ({ maxFailures, windowMs }) => {
  const states = new Map<string, AttemptState>();

  /** The state of `key` now; its failures are 0 when their window is over. */
  function stateOf(key: string): AttemptState {
    const state = states.get(key) ?? { failures: 0, resetAt: 0, running: 0 };
    if (state.resetAt <= Date.now()) state.failures = 0;
    return state;
  }

  function forgetIfEmpty(key: string): void {
    const { failures, running } = stateOf(key);
    if (failures + running === 0) states.delete(key);
  }

  function addFailure(key: string, state: AttemptState): void {
    if (state.failures === 0) {
      state.resetAt = Date.now() + windowMs;
      setTimeout(() => forgetIfEmpty(key), windowMs + 1).unref();
    }
    state.failures += 1;
  }

  return {
    async failures(key) {
      const { failures: count, resetAt } = stateOf(key);
      return { count, resetMs: Math.max(0, resetAt - Date.now()) };
    },
    async begin(key) {
      const state = stateOf(key);
      if (state.failures >= maxFailures) return { state: 'refused', resetMs: state.resetAt - Date.now() };
      if (state.failures + state.running >= maxFailures) return { state: 'wait' };
      state.running += 1;
      states.set(key, state);
      let isRunning = true;
      const end = () => {
        if (isRunning) state.running -= 1;
        isRunning = false;
        forgetIfEmpty(key);
      };
      const failed = async () => {
        addFailure(key, stateOf(key));
        end();
      };
      return { state: 'begun', attempt: { failed, end } };
    },
  };
};
