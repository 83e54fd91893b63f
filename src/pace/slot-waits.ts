import { abortableSleep } from './abortable-sleep.ts';
import { type EndpointBudgets, limitFor, type Rate, type Reservation } from './budgets.ts';
import { type Certainty, type EarlySlot, earlySlot } from './early-slots.ts';
import { type EnterQueues, holderQueues, type QueueRequest } from './holder-queues.ts';
import {
  type EndpointSlot,
  giveBackOnError,
  retryAfterMs,
  type SlotResult,
  startOrWait,
  waitForStart,
} from './slot-starts.ts';

export type { EndpointSlot, SlotResult } from './slot-starts.ts';

/**
 * The service's own rate, and how long messages may wait for it. Clients are told this rate; the budgets keep it with
 * the margin of `withJitterMargin`.
 */
export interface PacedRate extends Rate {
  /** How long a message may wait for its slots together, in ms; extra slots (`takeExtra`) have a wait of their own. */
  readonly maxWaitMs: number;
}

/** Waits for slots of budgets. When its signal aborts, each method gives the slot back and rejects with the reason. */
export interface SlotWaits {
  /**
   * Waits until a message to `endpoint` may start. It waits in two queues: first in its user's (`holders[0]`), then in
   * its address's (`holders[1]`, if given). Only the front message of a user's queue enters the address's queue. So the
   * messages of one user start in order, and the users of one address take turns.
   */
  take(request: QueueRequest, signal: AbortSignal): Promise<SlotResult>;
  /**
   * Asks for a slot in this tick of the event loop, before it is certain that the message is sent. In its queues, the
   * message counts as one that waits. The budget grants such a slot only if nobody misses it; else it is asked again
   * once the message is certain.
   */
  askEarly(request: QueueRequest): EarlySlot;
  /**
   * Call it when the service has answered 429. Pauses the endpoint for the `askedMs` that the service asked for, but at
   * most a minute, and waits until the message may start again. Returns 0, or the necessary wait in ms if it is longer
   * than the message may still wait.
   */
  takeAfterRefusal(slot: EndpointSlot, askedMs: number, signal: AbortSignal): Promise<number>;
  /** Pauses the endpoint in the same way after the refusal of a message that gets no further slot. */
  pauseAfterRefusal(slot: EndpointSlot, askedMs: number): Promise<void>;
  /**
   * Call it right before the message is sent. If it was delayed since its start, it counts from now, and waits if
   * there is no room in the budget now. Returns 0, or the necessary wait in ms if it is longer than the message may
   * still wait.
   */
  renew(slot: EndpointSlot, signal: AbortSignal): Promise<number>;
  /** Call it when the message was sent. If it was delayed again, it counts from now. */
  sent(slot: EndpointSlot): void;
  /**
   * Call it with whether the service has accepted the message; false also if the message was given up. It matters only
   * if the message was on trial.
   */
  judged(slot: EndpointSlot, accepted: boolean): void;
  /**
   * Takes one more slot for a message that must be sent with another API key, ahead of the messages that wait. It may
   * wait for a window and `maxWaitMs`, even if it has waited before, since a rejected key is not the client's fault.
   * Returns the slot, whose time has come, or the necessary wait in ms if that is longer.
   */
  takeExtra(slot: EndpointSlot, signal: AbortSignal): Promise<EndpointSlot | number>;
}

/** A message that is sent later than this after its start is delayed, in ms: by a new connection or a busy process. */
const MAX_START_AGE_MS = 5;
/** The longest pause, in ms: a service that asks for a day is usually back long before. */
const MAX_PAUSE_MS = 60_000;

/** Waits for slots of `budgets`, which keep `rate`. */
export function slotWaits(budgets: EndpointBudgets, rate: PacedRate): SlotWaits {
  // Longer queues are useless: more messages than this cannot start in time.
  const windows = Math.floor(rate.maxWaitMs / rate.windowMs) + 1;
  const enterQueues = holderQueues((endpoint) => limitFor(rate, endpoint) * windows);
  const waits: Waits = { budgets, rate, enterQueues };
  return {
    take: (request, signal) => take(waits, request, signal),
    askEarly: (request) => earlySlot((certainty, signal) => take(waits, { ...request, certainty }, signal)),
    async takeAfterRefusal(slot, askedMs, signal) {
      slot.onTrial = false;
      const starting = { budgets, slot, signal };
      await giveBackOnError(starting, budgets.penalize(slot.endpoint, slot.ticket, pauseOf(askedMs)));
      return startOrWait(starting);
    },
    async pauseAfterRefusal(slot, askedMs) {
      slot.onTrial = false;
      await budgets.penalize(slot.endpoint, slot.ticket, { ...pauseOf(askedMs), withoutSlot: true });
    },
    async renew(slot, signal) {
      return isDelayed(slot) ? startOrWait({ budgets, slot, signal }) : 0;
    },
    sent(slot) {
      // If this fails, the message counts from its start.
      if (isDelayed(slot)) budgets.sent(slot.endpoint, slot.ticket).catch(() => {});
    },
    judged(slot, accepted) {
      if (!slot.onTrial) return;
      slot.onTrial = false;
      // If this fails, the trial ends when its time is over.
      budgets.judged(slot.endpoint, slot.ticket, accepted).catch(() => {});
    },
    async takeExtra({ endpoint, ticket }, signal) {
      const waitLeftMs = rate.windowMs + rate.maxWaitMs;
      // The + marks it as the same message, so that a running trial continues with the extra slot.
      const extra = { endpoint, ticket: `${ticket}+`, startedAt: 0, waitLeftMs, onTrial: false };
      const tooLongMs = await startOrWait({ budgets, slot: extra, signal });
      return tooLongMs > 0 ? tooLongMs : extra;
    },
  };
}

/** What all waits share. */
interface Waits {
  readonly budgets: EndpointBudgets;
  readonly rate: PacedRate;
  readonly enterQueues: EnterQueues;
}

interface TimedReservation {
  readonly reservation: Reservation;
  /** When the reservation was requested, by `performance.now()` in ms. */
  readonly askedAt: number;
  /** Whether the slot was granted some time ago: it was not certain until now that the message is sent. */
  readonly isOld?: boolean;
}

interface TakeRequest extends QueueRequest {
  /** Undefined if the message is certain. */
  readonly certainty?: Certainty;
}

/** Reserves a slot and waits until it has come. */
async function take(waits: Waits, request: TakeRequest, signal: AbortSignal): Promise<SlotResult> {
  const { budgets, rate } = waits;
  const arrivedAt = performance.now();
  const { askedAt, reservation, isOld } = await reserve(waits, request, signal);
  if (reservation.state !== 'granted')
    return { reservation: { ...reservation, waitMs: retryAfterMs(reservation) } };
  const waitLeftMs = Math.max(0, rate.maxWaitMs - (performance.now() - arrivedAt));
  const { endpoint } = request;
  const slot = { endpoint, ticket: reservation.ticket, startedAt: askedAt, waitLeftMs, onTrial: false };
  const isDueNow = reservation.waitMs <= 0 && !isOld && !signal.aborted;
  if (isDueNow) {
    slot.onTrial = reservation.onTrial;
    return { slot, reservation: { ...reservation, resetMs: leftOf(reservation, askedAt) } };
  }
  const starting = { budgets, slot, signal };
  const tooLongMs = isOld ? await startOrWait(starting) : await waitForStart(starting, reservation);
  const resetMs = leftOf(reservation, askedAt);
  if (tooLongMs > 0) return { reservation: { ...reservation, waitMs: tooLongMs, resetMs } };
  return { slot, reservation: { ...reservation, resetMs } };
}

function leftOf({ resetMs }: Reservation, askedAt: number): number {
  return Math.max(0, resetMs - (performance.now() - askedAt));
}

/** Waits in the holders' queues, and then asks the budget until it grants or refuses a slot. */
async function reserve(waits: Waits, request: TakeRequest, signal: AbortSignal): Promise<TimedReservation> {
  const { budgets, rate, enterQueues } = waits;
  const { endpoint, holders, certainty } = request;
  const deadline = performance.now() + rate.maxWaitMs;
  const entered = enterQueues(request, deadline, signal);
  const leave = entered instanceof Promise ? await entered : entered;
  if (!leave) return { askedAt: performance.now(), reservation: queueFull(rate.windowMs) };
  try {
    const early = certainty && (await reserveEarly(waits, request, certainty));
    if (early) return early;
    for (;;) {
      const askedAt = performance.now();
      const leftMs = Math.max(0, deadline - askedAt);
      const reservation = await budgets.reserve({ endpoint, holders, maxWaitMs: leftMs });
      if (reservation.state !== 'share_taken' || reservation.waitMs > leftMs) return { askedAt, reservation };
      await abortableSleep(reservation.waitMs, signal);
    }
  } finally {
    leave();
  }
}

/** Reserves a slot before the message is certain, and waits until it is. Undefined if there is none for it now. */
async function reserveEarly(
  { budgets }: Waits,
  { endpoint, holders }: QueueRequest,
  { isCertain, certain }: Certainty,
): Promise<TimedReservation | undefined> {
  if (isCertain()) return undefined;
  const askedAt = performance.now();
  const reservation = await budgets.reserve({ endpoint, holders, maxWaitMs: 0, isEarly: true });
  const grantedAt = performance.now();
  const isGranted = reservation.state === 'granted';
  const { ticket } = reservation;
  // The caller gives back what it gets; here nobody has the slot yet.
  const starting = { budgets, slot: { endpoint, ticket } };
  await (isGranted ? giveBackOnError(starting, certain) : certain);
  const isOld = performance.now() - grantedAt > MAX_START_AGE_MS;
  return isGranted ? { askedAt, reservation, isOld } : undefined;
}

const pauseOf = (askedMs: number) => ({ believedMs: Math.min(askedMs, MAX_PAUSE_MS), askedMs });

function isDelayed({ startedAt }: EndpointSlot): boolean {
  return performance.now() - startedAt > MAX_START_AGE_MS;
}

/** The answer where a queue has no place, or the deadline passes in it. */
const queueFull = (windowMs: number): Reservation => ({
  state: 'refused',
  waitMs: windowMs,
  trialLeftMs: 0,
  onTrial: false,
  ticket: '',
  remaining: 0,
  resetMs: windowMs,
});
