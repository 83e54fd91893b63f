import { Problem } from '../errors.ts';
import { type RequestLocals, type SlotWait, waitedMs } from '../http/locals.ts';
import { JITTER_MS, limitFor, type Reservation } from './budgets.ts';
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
  return (message) =>
    paceMessage({ slots, rate, message, wait: { ms: 0, outcome: 'given_up' }, slot: undefined });
}

/** A message on its way through its waits. */
interface Paced {
  readonly slots: SlotWaits;
  readonly rate: PacedRate;
  readonly message: PacedMessage;
  /** What its log is told. */
  readonly wait: SlotWait;
  /** The slot by which it was sent last, or will be. */
  slot: EndpointSlot | undefined;
}

function paceMessage(paced: Paced): Pacing {
  const { slots, message } = paced;
  const { signal } = message;
  return {
    start: () => start(paced),
    async waitAgain(refusal) {
      const askedMs = (refusal.options.retryAfter ?? 1) * 1000;
      const tooLongMs = await waiting(paced, slots.takeAgain(granted(paced), askedMs, signal));
      if (tooLongMs === 0) return;
      const options = { ...refusal.options, retryAfter: seconds(tooLongMs) };
      throw new Problem(refusal.code, refusal.message, options);
    },
    async mayLeave() {
      const tooLongMs = await slots.leave(granted(paced), signal);
      if (tooLongMs > 0) throw refused(paced, tooLongMs);
    },
    sent() {
      if (paced.slot) slots.sent(paced.slot);
    },
    judged(accepted) {
      if (paced.slot) slots.judged(paced.slot, accepted);
    },
    async oneMore() {
      const more = await waiting(paced, slots.takeOneMore(granted(paced), signal));
      if (typeof more === 'number') throw refused(paced, more);
      paced.slot = more;
    },
  };
}

/** Waits for the first slot; returns the headers that tell of the budget. */
async function start(paced: Paced): Promise<Record<string, string>> {
  const { slots, rate, message } = paced;
  const { endpoint, signal } = message;
  const { user, address } = message.holders;
  const holders = address === undefined ? [user] : [user, address];
  const turn = await waiting(paced, slots.take({ endpoint, holders }, signal));
  const headers = rateHeaders(rate, endpoint, turn.reservation);
  if (!turn.slot) throw refused(paced, turn.reservation.waitMs, headers);
  paced.slot = turn.slot;
  paced.wait.outcome = 'granted';
  return headers;
}

function rateHeaders(rate: PacedRate, endpoint: string, { remaining, resetMs }: Reservation) {
  // Without what the relay adds: a client is told of the service's own window.
  const reset = seconds(Math.max(0, resetMs - JITTER_MS));
  return {
    'RateLimit-Policy': `"endpoint";q=${limitFor(rate, endpoint)};w=${seconds(rate.windowMs)}`,
    RateLimit: `"endpoint";r=${remaining};t=${reset}`,
  };
}

/** Counts the time that `work` takes as waiting. */
async function waiting<T>({ message, wait }: Paced, work: Promise<T>): Promise<T> {
  message.log.slotWait = wait;
  wait.since = performance.now();
  try {
    return await work;
  } finally {
    wait.ms = waitedMs(wait);
    wait.since = undefined;
  }
}

function refused({ wait }: Paced, waitMs: number, headers: Record<string, string> = {}): Problem {
  wait.outcome = 'refused';
  const detail = 'This bot gets as many messages as it takes right now; try again.';
  return new Problem('rate_limited', detail, { retryAfter: seconds(waitMs), headers });
}

function granted({ slot }: Paced): EndpointSlot {
  if (!slot) throw new Error('a message without a slot is sent');
  return slot;
}

/** Whole seconds, rounded up: a client that waits so long is never too early. */
function seconds(ms: number): number {
  return Math.ceil(ms / 1000);
}
