import { setTimeout as wait } from 'node:timers/promises';

const STEP_MS = 20;

/**
 * Waits about `ms`, in short steps. Between two of them everything is handled that has arrived, so that after a pause
 * of the whole process there was still time for what the test waits for.
 */
export async function sleep(ms: number): Promise<void> {
  // No test moves this clock.
  const until = process.hrtime.bigint() + BigInt(Math.ceil(ms * 1_000_000));
  let left = ms;
  do {
    await wait(Math.min(left, STEP_MS));
    left -= STEP_MS;
    // Each step takes a little longer than it should.
  } while (left > 0 && (left > ms / 2 || process.hrtime.bigint() < until));
}
