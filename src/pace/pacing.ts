import { Problem } from '../errors.ts';
import type { RequestLocals } from '../http/locals.ts';
import { JITTER_MS, limitFor } from './budgets.ts';
import type { Holders } from './holders.ts';
import type { EndpointSlot, PacedRate, SlotWaits } from './slot-waits.ts';

/** A message, or another request, that waits for slots of its endpoint's budget. */
export interface PacedMessage {
  readonly endpoint: string;
  readonly holders: Holders;
  /** Ends all waiting; what waits then rejects with its reason. */
  readonly signal: AbortSignal;
  /** Told how long the message has waited. */
  readonly log: Pick<RequestLocals, 'slotWait'>;
}

/** The slots of one message. */
export interface Pacing {
  /**
   * Waits until the message may start. Returns the headers `RateLimit` and `RateLimit-Policy` of its answer
   * (draft-ietf-httpapi-ratelimit-headers-08).
   * @throws Problem `rate_limited`, with these headers, if no slot comes in time
   */
  start(): Promise<Record<string, string>>;
  /**
   * Waits until a message that the service has refused with 429 may be sent again: as long as the service asked, but
   * a minute at most; nothing goes to that endpoint before then.
   * @throws Problem `refusal`, with how long that takes, if the message may not wait so long
   */
  waitAgain(refusal: Problem): Promise<void>;
  /** Waits until a message that was held up on its way may leave. @throws Problem `rate_limited` if that takes too long */
  mayLeave(): Promise<void>;
  /** To be called when the message, or a further attempt at it, has left for the service. */
  sent(): void;
  /** To be called when the service has accepted the message, or when it is clear that it does not. */
  judged(accepted: boolean): void;
  /**
   * Waits until a message may be sent once more because the service has refused its key: that request has reached
   * the service as well, so that both count.
   * @throws Problem `rate_limited` if that takes too long
   */
  oneMore(): Promise<void>;
}

/** Makes the function that paces a message by the budget of its endpoint. */
export function pacing(slots: SlotWaits, rate: PacedRate): (message: PacedMessage) => Pacing {
  return function paceMessage({ endpoint, holders: { user, address }, signal, log }) {
    let waitedMs = 0;
    let askedAt: number | undefined;
    const wait = {
      outcome: 'given_up' as 'granted' | 'refused' | 'given_up',
      /** Up to now: the log may tell of a client that has left before the wait learns of it. */
      get ms() {
        return waitedMs + (askedAt === undefined ? 0 : performance.now() - askedAt);
      },
    };
    let slot: EndpointSlot | undefined;

    async function waiting<T>(work: Promise<T>): Promise<T> {
      askedAt = performance.now();
      log.slotWait = wait;
      try {
        return await work;
      } finally {
        waitedMs = wait.ms;
        askedAt = undefined;
      }
    }
    function refused(waitMs: number, headers: Record<string, string> = {}): Problem {
      wait.outcome = 'refused';
      const detail = 'This bot gets as many messages as it takes right now; try again.';
      return new Problem('rate_limited', detail, { retryAfter: seconds(waitMs), headers });
    }
    function granted(): EndpointSlot {
      if (!slot) throw new Error('a message without a slot is sent');
      return slot;
    }

    return {
      async start() {
        const holders = address === undefined ? [user] : [user, address];
        const turn = await waiting(slots.take({ endpoint, holders }, signal));
        const { remaining, resetMs, waitMs } = turn.reservation;
        // Without what the relay adds: a client is told of the service's own window.
        const reset = seconds(Math.max(0, resetMs - JITTER_MS));
        const headers = {
          'RateLimit-Policy': `"endpoint";q=${limitFor(rate, endpoint)};w=${seconds(rate.windowMs)}`,
          RateLimit: `"endpoint";r=${remaining};t=${reset}`,
        };
        if (!turn.slot) throw refused(waitMs, headers);
        slot = turn.slot;
        wait.outcome = 'granted';
        return headers;
      },
      async waitAgain(refusal) {
        const askedMs = (refusal.options.retryAfter ?? 1) * 1000;
        const tooLongMs = await waiting(slots.takeAgain(granted(), askedMs, signal));
        if (tooLongMs === 0) return;
        const options = { ...refusal.options, retryAfter: seconds(tooLongMs) };
        throw new Problem(refusal.code, refusal.message, options);
      },
      async mayLeave() {
        const tooLongMs = await slots.leave(granted(), signal);
        if (tooLongMs > 0) throw refused(tooLongMs);
      },
      sent() {
        if (slot) slots.sent(slot);
      },
      judged(accepted) {
        if (slot) slots.judged(slot, accepted);
      },
      async oneMore() {
        const more = await waiting(slots.takeOneMore(granted(), signal));
        if (typeof more === 'number') throw refused(more);
        slot = more;
      },
    };
  };
}

/** Whole seconds, rounded up: a client that waits so long is never too early. */
function seconds(ms: number): number {
  return Math.ceil(ms / 1000);
}
