const TICK_MS = 10;
const MOST_PER_TICK_MS = 25;

/**
 * Starts to count how long this process is awake: time in which it is paused or starved is not counted. The returned
 * function ends that and returns the ms. For upper bounds: "at once" says that nothing waits, not that the machine is
 * quick.
 */
export function countAwakeMs(): () => number {
  let awake = 0;
  const end = watchTicks(TICK_MS, (ms) => {
    awake += Math.min(ms, MOST_PER_TICK_MS);
  });
  return () => {
    end();
    return awake;
  };
}

/**
 * Calls `onTick` about every `everyMs` with the ms since the last call. The returned function ends that with one more call.
 */
export function watchTicks(everyMs: number, onTick: (ms: number) => void): () => void {
  // No test moves this clock.
  let last = process.hrtime.bigint();
  function tick(): void {
    const now = process.hrtime.bigint();
    onTick(Number(now - last) / 1_000_000);
    last = now;
  }
  const ticks = setInterval(tick, everyMs);
  return () => {
    clearInterval(ticks);
    tick();
  };
}
