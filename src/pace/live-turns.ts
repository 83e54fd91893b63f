import { Problem } from '../errors.ts';
import { type SlotWait, waitedMs } from '../http/locals.ts';
import type { ResumptionTurn } from '../relay/message/resumption-attempt.ts';
import type { PacedMessage } from './pacing.ts';
import type { TakeResumptionTurn } from './resumption-turns.ts';

/** How much later than messages a live stream asks for a slot that is free again, in ms: also later than resumptions. */
export const LIVE_YIELD_MS = 100;
/** The longest wait for a slot, in ms. */
const MAX_WAIT_MS = 30_000;

/**
 * Waits until a live stream may be asked for: after messages, and at most 30 seconds each time. The methods of the slot
 * wait in the same way.
 * @throws Problem `rate_limited` if no slot comes in time, `session_store_unavailable`; the signal's reason
 */
export type TakeLiveTurn = (request: PacedMessage) => Promise<ResumptionTurn>;

/** Makes the wait of live streams, with slots of `takeTurn`. */
export function liveTurns(takeTurn: TakeResumptionTurn): TakeLiveTurn {
  return async function takeLiveTurn({ endpoint, holders, signal, log }) {
    const wait: SlotWait = { ms: 0, outcome: 'given_up' };
    log.slotWait = wait;
    const late = new AbortController();
    const giveUp = () => {
      wait.outcome = 'refused';
      late.abort(tooManyMessages());
    };
    async function withinLimit<T>(work: Promise<T>): Promise<T> {
      wait.since = performance.now();
      const timer = setTimeout(giveUp, MAX_WAIT_MS);
      try {
        return await work;
      } finally {
        clearTimeout(timer);
        wait.ms = waitedMs(wait);
        wait.since = undefined;
      }
    }
    const both = AbortSignal.any([signal, late.signal]);
    const slot = await withinLimit(takeTurn({ endpoint, holders }, both));
    wait.outcome = 'granted';
    return {
      ...slot,
      renewSlot: () => withinLimit(slot.renewSlot()),
      takeExtraSlot: () => withinLimit(slot.takeExtraSlot()),
    };
  };
}

function tooManyMessages(): Problem {
  const detail = 'This path of the bot has as many requests as it can take now; try again later.';
  return new Problem('rate_limited', detail, { retryAfter: 1 });
}
