/** An endpoint's budget: `limit` starts in any stretch of `windowMs`. */
export interface Rate {
  readonly limit: number;
  readonly windowMs: number;
  /** The limit of an endpoint that has one of its own; asked every time, so that it may change. */
  readonly limitOf?: (endpoint: string) => number | undefined;
}

/** The limit that counts for an endpoint. */
export function limitFor({ limit, limitOf }: Rate, endpoint: string): number {
  return limitOf?.(endpoint) ?? limit;
}

export interface Wish {
  /** `namespace/bot`. */
  readonly endpoint: string;
  /** Who asks, without white space: one holder has at most `WAITING_SHARE` slots of an endpoint that lie ahead. */
  readonly holder: string;
  /** A slot that is further away than this is of no use, in ms. */
  readonly maxWaitMs: number;
}

/** The answer to a wish for a slot. Times are waits from now, in ms. */
export interface Reservation {
  /**
   * `granted`: the slot is taken. `refused`: it would be too far away; nothing is recorded. `share_taken`: the
   * holder must wait until its next slot has come before it may have another; nothing is recorded.
   */
  readonly state: 'granted' | 'refused' | 'share_taken';
  /** Until the slot that is granted (0 is now) or would have been, or until the holder's next slot. */
  readonly waitMs: number;
  /** What names a granted slot from now on. */
  readonly ticket: string;
  /** Slots that are left now. */
  readonly remaining: number;
  /** How long until all slots are free again. */
  readonly resetMs: number;
}

/** The budgets of all endpoints; one contract, kept in this process's memory or in Redis for all instances. */
export interface EndpointBudgets {
  /** Takes the first slot that fits, in the order of the calls. */
  reserve(wish: Wish): Promise<Reservation>;
  /**
   * Asks whether a message whose slot has come may start, and if so counts it from now; also one that has started
   * before and was held up. Otherwise (the service has asked for a pause, or others were late) the slot is moved. A
   * ticket that has no slot yet gets the first one in front of those that wait. Returns how long to wait on, in ms:
   * 0 is go.
   */
  start(endpoint: string, ticket: string): Promise<number>;
  /** The message of `ticket` has left for the service only now, some time after its start: it counts from now. */
  sent(endpoint: string, ticket: string): Promise<void>;
  /** Gives a slot back whose message has not started and never will. */
  cancel(endpoint: string, ticket: string): Promise<void>;
  /**
   * The service has refused the message of `ticket`, and takes none for `pauseMs`: no slot lies before then. The
   * message gets the first slot behind the pause, in front of those that wait; ask `start` for it.
   */
  penalize(endpoint: string, ticket: string, pauseMs: number): Promise<void>;
}

/** How many slots of an endpoint that lie ahead one holder can have, so that nobody stands behind one who asks for many. */
export const WAITING_SHARE = 2;

/**
 * How much closer two messages may come to the service than they left the relay, in ms: what the network and a
 * busy machine add to one and not to the other. Measured by `bench/pacing.ts`.
 */
export const JITTER_MS = 25;

/** The rate to keep so that the service, which sees the messages with some jitter, never counts more than `rate`. */
export function spaced(rate: Rate): Rate {
  return { ...rate, windowMs: rate.windowMs + JITTER_MS };
}
