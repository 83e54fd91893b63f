// Each bot, `namespace/bot`, has an endpoint at the bot service, which takes only so many messages of one endpoint in a
// window: that is the endpoint's budget. Here each message waits for a slot of that budget.
import { Problem } from '../errors.ts';
import { type RequestLocals, type SlotWait, waitedMs } from '../http/locals.ts';
import { JITTER_MS, limitFor, type Reservation } from './budgets.ts';
import { type Holders, namesOf } from './holders.ts';
import type { EndpointSlot, PacedRate, SlotWaits } from './slot-waits.ts';

/** A message, or another operation, that waits for slots of its endpoint's budget. All are called messages here. */
export interface PacedMessage {
  readonly endpoint: string;
  readonly holders: Holders;
  /** When it aborts, every wait rejects with its reason. */
  readonly signal: AbortSignal;
  /** Its `slotWait` is set to how long the message has waited, for the log line and the metrics. */
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
   * at most a minute. No other message to the endpoint starts before then.
   * @throws Problem with the code of `refusal`, and the time as `Retry-After`, if the message may not wait so long
   */
  waitAfterRefusal(refusal: Problem): Promise<void>;
  /**
   * Waits until a message that was delayed after its start may be sent. @throws Problem `rate_limited` if it takes too
   * long
   */
  renewSlot(): Promise<void>;
  /** Call it each time the message was sent. */
  sent(): void;
  /**
   * Waits until a message whose API key the service has refused (401 or 403) may be sent with the next key. The first
   * request has reached the service, so that both requests count.
   * @throws Problem `rate_limited` if that takes too long
   */
  takeExtraSlot(): Promise<void>;
}

/** Makes the function that paces a message by the budget of its endpoint. */
export function pacing(slots: SlotWaits, rate: PacedRate): (message: PacedMessage) => Pacing {
  return (message) =>
    // The outcome stays `given_up` if the wait ends with an error, for example because the client has left.
    paceMessage({ slots, rate, message, wait: { ms: 0, outcome: 'given_up' }, slot: undefined });
}

/** A message and its waits. */
interface Paced {
  readonly slots: SlotWaits;
  readonly rate: PacedRate;
  readonly message: PacedMessage;
  /** For the log. */
  readonly wait: SlotWait;
  /** The slot of its last or next request. */
  slot: EndpointSlot | undefined;
}

function paceMessage(paced: Paced): Pacing {
  const { slots, message } = paced;
  const { signal } = message;
  return {
    start: () => start(paced),
    async waitAfterRefusal(refusal) {
      const askedMs = (refusal.options.retryAfter ?? 1) * 1000;
      const tooLongMs = await waiting(paced, () => slots.takeAfterRefusal(granted(paced), askedMs, signal));
      if (tooLongMs === 0) return;
      const options = { ...refusal.options, retryAfter: seconds(tooLongMs) };
      throw new Problem(refusal.code, refusal.message, options);
    },
    async renewSlot() {
      const tooLongMs = await slots.renew(granted(paced), signal);
      if (tooLongMs > 0) throw refused(paced, tooLongMs);
    },
    sent() {
      if (paced.slot) slots.sent(paced.slot);
    },
    async takeExtraSlot() {
      const extra = await waiting(paced, () => slots.takeExtra(granted(paced), signal));
      if (typeof extra === 'number') throw refused(paced, extra);
      paced.slot = extra;
    },
  };
}

/** Waits for the first slot; returns the headers about the budget. */
async function start(paced: Paced): Promise<Record<string, string>> {
  const { slots, rate, message } = paced;
  const { endpoint, holders, signal } = message;
  const request = { endpoint, holders: namesOf(holders) };
  const { slot, reservation } = await waiting(paced, () => slots.take(request, signal));
  const headers = rateHeaders(rate, endpoint, reservation);
  if (!slot) throw refused(paced, reservation.waitMs, headers);
  paced.slot = slot;
  paced.wait.outcome = 'granted';
  return headers;
}

function rateHeaders(rate: PacedRate, endpoint: string, { remaining, resetMs }: Reservation) {
  // A client is told about the service's own window, without the margin that the relay adds.
  const reset = seconds(Math.max(0, resetMs - JITTER_MS));
  return {
    'RateLimit-Policy': `"endpoint";q=${limitFor(rate, endpoint)};w=${seconds(rate.windowMs)}`,
    RateLimit: `"endpoint";r=${remaining};t=${reset}`,
  };
}

/** Adds the time that `work` takes to the wait of the message. */
async function waiting<T>({ message, wait }: Paced, work: () => Promise<T>): Promise<T> {
  message.log.slotWait = wait;
  wait.since = performance.now();
  try {
    return await work();
  } finally {
    wait.ms = waitedMs(wait);
    wait.since = undefined;
  }
}

/** The relay's own refusal, of a message that gets no slot in time; the service has not seen this request. */
function refused({ wait }: Paced, waitMs: number, headers: Record<string, string> = {}): Problem {
  wait.outcome = 'refused';
  const detail = 'This path of the bot has as many requests as it can take now; try again later.';
  return new Problem('rate_limited', detail, { retryAfter: seconds(waitMs), headers });
}

function granted({ slot }: Paced): EndpointSlot {
  if (!slot) throw new Error('the message has no slot');
  return slot;
}

/** Whole seconds, rounded up, so that a client that waits this long is not too early. */
function seconds(ms: number): number {
  return Math.ceil(ms / 1000);
}
