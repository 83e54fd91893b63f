import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Waits `ms`, and not a little less: a timer counts in whole ms, and may come up to one early. Rejects with the
 * signal's reason if that aborts before.
 */
export async function interruptible(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(Math.ceil(ms) + 1, undefined, { signal });
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  }
}
