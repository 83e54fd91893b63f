import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Waits at least `ms`. A timer counts in whole ms and may end up to 1 ms early, so that this waits a little longer.
 * Rejects with the signal's reason if that aborts first.
 */
export async function abortableSleep(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(Math.ceil(ms) + 1, undefined, { signal });
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  }
}
