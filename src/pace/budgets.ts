/** An endpoint's budget: `limit` starts in any stretch of `windowMs`. */
export interface Rate {
  readonly limit: number;
  readonly windowMs: number;
  /** The limit of an endpoint that has one of its own; asked every time, so that it may change. */
  readonly limitOf?: (endpoint: string) => number | undefined;
  /** How long a message on trial may take to be judged before the next may go, in ms; a minute if it is not set. */
  readonly trialMs?: number;
}

export const TRIAL_MS = 60_000;
/** How often a message that waits for the end of another's trial asks, in ms. */
export const TRIAL_LOOK_MS = 250;

/** The limit that counts for an endpoint. */
export function limitFor({ limit, limitOf }: Rate, endpoint: string): number {
  return limitOf?.(endpoint) ?? limit;
}

export interface Wish {
  /** `namespace/bot`. */
  readonly endpoint: string;
  /** For whom, without white space: each has at most `WAITING_SHARE` slots of an endpoint that lie ahead. */
  readonly holders: readonly string[];
  /** A slot that is further away than this is of no use, in ms. */
  readonly maxWaitMs: number;
}

/** When a message may start. Times are waits from now, in ms. */
export interface Start {
  /** 0 is go; otherwise, how long to wait before `start` is asked (again). */
  readonly waitMs: number;
  /** How long another message that is on trial may still take to be judged; 0 if there is none. */
  readonly judgedMs: number;
  /** Whether the message goes on trial: `judged` wants to know what becomes of it. */
  readonly onTrial: boolean;
}

/** The answer to a wish for a slot. Times are waits from now, in ms. */
export interface Reservation extends Start {
  /**
   * `granted`: the slot is taken. `refused`: it would be too far away; nothing is recorded. `share_taken`: one of the
   * holders must wait until its next slot has come before it may have another; nothing is recorded.
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

/** How long the service takes no messages, in ms from now. */
export interface Pause {
  /** So long nothing goes to it. */
  readonly believedMs: number;
  /** So long it has asked for: what goes before then goes on trial. */
  readonly askedMs: number;
}

/** The budgets of all endpoints; one contract, kept in this process's memory or in Redis for all instances. */
export interface EndpointBudgets {
  /** Takes the first slot that fits, in the order of the calls. */
  reserve(wish: Wish): Promise<Reservation>;
  /**
   * Asks whether a message whose slot has come may start, and if so counts it from now; also one that has started
   * before and was held up. Otherwise (the service has asked for a pause, or others were late) the slot is moved. A
   * ticket that has no slot yet gets the first one in front of those that wait.
   *
   * A message that starts before the time is over that the service has asked for goes on trial, one at a time over all
   * who share the budgets: the others wait until it is judged, until it has had its time, or until the service's own
   * is over. A ticket that begins with that of the message on trial counts as the same message.
   */
  start(endpoint: string, ticket: string): Promise<Start>;
  /** The message of `ticket`, on trial, has been accepted by the service, which then takes all; or not: another may go on trial. */
  judged(endpoint: string, ticket: string, accepted: boolean): Promise<void>;
  /** The message of `ticket` has left for the service only now, some time after its start: it counts from now. */
  sent(endpoint: string, ticket: string): Promise<void>;
  /** Gives a slot back whose message has not started and never will. */
  cancel(endpoint: string, ticket: string): Promise<void>;
  /**
   * The service has refused the message of `ticket`, and asked for a pause: no slot lies before `believedMs`. The
   * message gets the first slot behind the pause, in front of those that wait; ask `start` for it.
   */
  penalize(endpoint: string, ticket: string, pause: Pause): Promise<void>;
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
