/** An endpoint's budget: at most `limit` messages start in any interval of `windowMs`. */
export interface Rate {
  readonly limit: number;
  readonly windowMs: number;
  /** The limit of an endpoint that has its own. It is called every time, since the limit may change. */
  readonly limitOf?: (endpoint: string) => number | undefined;
  /**
   * How long the next message waits for the result of a message on trial, in ms; by default `TRIAL_MS`. A message on
   * trial is the one that is sent to find out whether the service takes messages again, before the pause that the
   * service asked for is over. A circuit breaker in its half-open state does the same.
   */
  readonly trialMs?: number;
}

export const TRIAL_MS = 60_000;
/** How often a message asks whether the trial of another message has ended, in ms. */
export const TRIAL_POLL_MS = 250;

/** The limit of an endpoint: its own, or that of all. */
export function limitFor({ limit, limitOf }: Rate, endpoint: string): number {
  return limitOf?.(endpoint) ?? limit;
}

/** A request for a slot of a budget. */
export interface SlotRequest {
  /** `namespace/bot`; for an operation other than a message, with the operation's path behind it. */
  readonly endpoint: string;
  /**
   * For whom: slots are shared out fairly between holders. The first is the user, the second, for guests only, is the
   * client's IP address. The future slots of an endpoint are limited for each. A name contains no white
   * space, because tickets and the keys of queues join names with a space.
   */
  readonly holders: readonly string[];
  /** If the first free slot comes later than this, in ms, the state is `refused`. */
  readonly maxWaitMs: number;
  /** How many future slots each of the holders may have; by default `MAX_FUTURE_SLOTS`. */
  readonly maxFutureSlots?: number;
  /**
   * Whether the message may yet turn out to need no slot. Then it gets one only if half of the budget stays free and
   * the service has asked for no pause; else the state is `refused`. With a `maxWaitMs` of 0, a slot that is given back
   * has kept nobody waiting.
   */
  readonly isEarly?: boolean;
}

/** When a message may start. Times are in ms from now. */
export interface StartAnswer {
  /** 0 if it may start now; otherwise how long to wait before `start` is called (again). */
  readonly waitMs: number;
  /** How long the trial of another message may still last; 0 if there is none. */
  readonly trialLeftMs: number;
  /** Whether the message goes on trial: `judged` must be called with its result. */
  readonly onTrial: boolean;
}

/** The answer to a request for a slot. Times are in ms from now. */
export interface Reservation extends StartAnswer {
  /**
   * `granted`: the slot is reserved. `refused`: the slot comes later than `maxWaitMs`; nothing is recorded, and the
   * service is not asked. `share_taken`: one of the holders already has `MAX_FUTURE_SLOTS` slots in the future; nothing
   * is recorded. Ask again after `waitMs`.
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

/** How long the service wants no messages, after it has answered 429; in ms from now. */
export interface Pause {
  /** For this long no message is sent: `askedMs`, but at most a minute. */
  readonly believedMs: number;
  /** What the service asked for. A message that is sent after `believedMs` and before this goes on trial. */
  readonly askedMs: number;
  /** Whether the refused message gets no slot after the pause; it then counts from its start, as before. */
  readonly withoutSlot?: boolean;
}

/**
 * The budgets of all endpoints, kept in this process's memory, or in Redis for all instances.
 *
 * A message starts when its budget lets it go and counts it. It is sent when it was written to the network, normally
 * less than 5 ms later.
 */
export interface EndpointBudgets {
  /** Reserves the first slot that fits, in the order of the calls. The answer of the memory is there at once. */
  reserve(request: SlotRequest): Reservation | Promise<Reservation>;
  /**
   * Asks whether a message may start. If so, it counts from now. If not (the service has asked for a pause, or others
   * were late), its slot is moved. There are three cases:
   * - The time of the message's slot has come.
   * - The message started before, but was delayed: its old start is replaced.
   * - The ticket is unknown (an extra request): it gets the first free slot, ahead of the messages that wait.
   *
   * A message that starts earlier than the service has asked for goes on trial, one at a time over all instances. The
   * others wait until it is judged, until `trialMs` is over, or until the time that the service asked for is over. A
   * ticket that begins with the ticket of the message on trial counts as the same message.
   */
  start(endpoint: string, ticket: string): Promise<StartAnswer>;
  /**
   * Ends the trial of the message of `ticket`. If the service has accepted the message, all others may start;
   * otherwise the next message goes on trial.
   */
  judged(endpoint: string, ticket: string, accepted: boolean): Promise<void>;
  /** The message of `ticket` was sent only now, some time after its start: it counts from now. */
  sent(endpoint: string, ticket: string): Promise<void>;
  /** Gives back the slot of a message that has not started and will not start. */
  cancel(endpoint: string, ticket: string): Promise<void>;
  /**
   * The service has answered 429 to the message of `ticket` and asked for a pause: all future slots move behind
   * `believedMs`. Unless the pause is `withoutSlot`, the message gets the first slot after it; call `start` for it. If
   * the message was on trial, this ends the trial: it was not accepted.
   */
  penalize(endpoint: string, ticket: string, pause: Pause): Promise<void>;
}

/** How many future slots of an endpoint one holder may have by default, so that one with many messages does not block others. */
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
