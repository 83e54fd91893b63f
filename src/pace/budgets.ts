/** An endpoint's budget: at most `limit` messages start in any interval of `windowMs`. */
export interface Rate {
  readonly limit: number;
  readonly windowMs: number;
  /** The limit of an endpoint that has its own. It is called every time, since the limit may change. */
  readonly limitOf?: (endpoint: string) => number | undefined;
}

/** The limit of an endpoint: its own, or that of all. */
export function limitFor({ limit, limitOf }: Rate, endpoint: string): number {
  return limitOf?.(endpoint) ?? limit;
}

/** A request for a slot of a budget. */
export interface SlotRequest {
  /** `namespace/bot`; for an operation other than a message, with the operation's path behind it. */
  readonly endpoint: string;
  /**
   * For whom: slots are shared out fairly between holders. The first is the user; the second, for guests only, is the
   * client's IP address. For each, the future slots of an endpoint are limited. A name contains no white space, since
   * tickets and the keys of queues join names with a space.
   */
  readonly holders: readonly string[];
  /** If the first free slot comes later than this, in ms, the state is `refused`. */
  readonly maxWaitMs: number;
  /** How many future slots each holder may have; by default `MAX_FUTURE_SLOTS`. */
  readonly maxFutureSlots?: number;
}

/** The answer to a request for a slot. Times are in ms from now. */
export interface Reservation {
  /**
   * `granted`: the slot is reserved. `refused`: the slot comes later than `maxWaitMs`; nothing is recorded.
   * `share_taken`: one of the holders already has `MAX_FUTURE_SLOTS` slots in the future; nothing is recorded. Ask again
   * after `waitMs`.
   */
  readonly state: 'granted' | 'refused' | 'share_taken';
  /** Until the slot that is granted (0 is now) or comes too late; for `share_taken`, until the holder's next slot. */
  readonly waitMs: number;
  /** The name of a granted slot in later calls. */
  readonly ticket: string;
  /** How many slots are free now. */
  readonly remaining: number;
  /** How long until all slots are free again. */
  readonly resetMs: number;
}

/**
 * The budgets of all endpoints, kept in this process's memory, or in Redis for all instances.
 *
 * A message starts when its budget lets it go and counts it. It is sent when it was written to the network, normally
 * less than 5 ms later.
 */
export interface EndpointBudgets {
  /** Reserves the first slot that fits, in the order of the calls. */
  reserve(request: SlotRequest): Promise<Reservation>;
  /**
   * Asks whether a message may start. If so, it counts from now, and the answer is 0. If not (the service has asked for
   * a pause, or other messages were delayed), its slot is moved: ask again after the answer, in ms. There are three cases:
   * - The time of the message's slot has come.
   * - The message started before, but was delayed: its old start is replaced.
   * - The ticket is unknown (an extra request): it gets the first free slot, ahead of the messages that wait.
   */
  start(endpoint: string, ticket: string): Promise<number>;
  /** The message of `ticket` was sent only now, some time after its start: it counts from now. */
  sent(endpoint: string, ticket: string): Promise<void>;
  /** Gives back the slot of a message that has not started and will not start. */
  cancel(endpoint: string, ticket: string): Promise<void>;
  /**
   * The service has asked for a pause: all future slots move behind it. The message `first`, if it is given, gets the
   * first slot after the pause in place of the one that it had; call `start` for it.
   */
  pause(endpoint: string, pauseMs: number, first?: string): Promise<void>;
}

/**
 * How many future slots of an endpoint one holder may have by default, so that one with many messages does not block
 * others.
 */
export const MAX_FUTURE_SLOTS = 2;

/**
 * How much closer together two messages may arrive at the service than they left the relay, in ms: the network or a
 * busy machine may delay only the first of them. Measured by `bench/pacing.ts`.
 */
export const JITTER_MS = 25;

/** The rate that the relay keeps, so that the service never counts more than `rate` in spite of jitter. */
export function withJitterMargin(rate: Rate): Rate {
  return { ...rate, windowMs: rate.windowMs + JITTER_MS };
}
