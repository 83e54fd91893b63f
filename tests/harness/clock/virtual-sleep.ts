/**
 * `abortableSleep` on a clock that `jest.useFakeTimers` stops, for `jest.unstable_mockModule`: who has a turn when does
 * not depend on how busy the machine is.
 */
export const abortableSleep = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, Math.ceil(ms) + 1);
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });
