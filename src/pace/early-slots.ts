import type { SlotResult } from './slot-starts.ts';

/** The slot of a message of which it is not certain yet that it is sent. */
export interface EarlySlot {
  /** The message is sent: waits for its slot, as `SlotWaits.take`. Call it once at most. */
  take(signal: AbortSignal): Promise<SlotResult>;
  /** The message is not sent: gives the slot back, unless it was taken. May be called again. */
  drop(): void;
}

/** Whether a message is sent. */
export interface Certainty {
  isCertain(): boolean;
  /** Resolves when it is certain; rejects if the message is not sent. */
  readonly certain: Promise<void>;
}

/** Lets `wait` begin to wait for a slot now. It must give the slot back when its signal aborts. */
export function earlySlot(
  wait: (certainty: Certainty, signal: AbortSignal) => Promise<SlotResult>,
): EarlySlot {
  const stop = new AbortController();
  const certain = Promise.withResolvers<void>();
  let isTaken = false;
  const result = wait({ isCertain: () => isTaken, certain: certain.promise }, stop.signal);
  // Nobody waits for either if the message is not sent.
  certain.promise.catch(() => {});
  result.catch(() => {});
  const end = (reason: unknown) => {
    stop.abort(reason);
    certain.reject(reason);
  };
  return {
    take(signal) {
      isTaken = true;
      const abort = () => end(signal.reason);
      if (signal.aborted) abort();
      else signal.addEventListener('abort', abort, { once: true });
      certain.resolve();
      return result;
    },
    drop() {
      if (!isTaken) end('not sent');
    },
  };
}
