import { setTimeout as wait } from 'node:timers/promises';

const STEP_MS = 20;
/** A step that took longer shows that the process was paused, or that there was much to do. */
const LATE_MS = 100;

/**
 * Waits about `ms`, in short steps. Between two of them everything is handled that has arrived. The last two steps are
 * in time, so that after a pause of the whole process there was still time for what the test waits for.
 */
export async function sleep(ms: number): Promise<void> {
  // No test moves this clock.
  const now = () => Number(process.hrtime.bigint()) / 1_000_000;
  const until = now() + ms;
  let left = ms;
  let inTime = 2;
  do {
    const startedAt = now();
    await wait(Math.min(Math.max(left, 1), STEP_MS));
    inTime = now() - startedAt > LATE_MS ? 0 : inTime + 1;
    left -= STEP_MS;
    // Each step takes a little longer than it should.
  } while (inTime < 2 || left > ms / 2 || now() < until);
}
