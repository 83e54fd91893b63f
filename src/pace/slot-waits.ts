import { type EndpointBudgets, limitFor, type Reservation } from './budgets.ts';
import { type EarlySlot, earlySlot } from './early-slots.ts';
import { holderQueues, type QueueRequest } from './holder-queues.ts';
import {
  type PacedRate,
  reserve,
  type TakeRequest,
  type Taking,
  type TimedReservation,
  type Waits,
} from './slot-reservations.ts';
import {
  type EndpointSlot,
  giveBackOnError,
  MAX_START_AGE_MS,
  retryAfterMs,
  type SlotResult,
  type Starting,
  startOrWait,
  waitForStart,
} from './slot-starts.ts';

export type { PacedRate } from './slot-reservations.ts';
export type { EndpointSlot, SlotResult } from './slot-starts.ts';

/** Waits for slots of budgets. When its signal aborts, each method gives the slot back and rejects with the reason. */
export interface SlotWaits {
  /**
   * Waits until a message to `endpoint` may start. It waits in two queues: first in its user's (`holders[0]`), then in
   * its address's (`holders[1]`, if given). Only the front message of a user's queue enters the address's queue. So the
   * messages of one user start in order, and the users of one address take turns. If nobody waits, and the budget's
   * answer is there at once, so is the result.
   */
  take(request: QueueRequest, signal: AbortSignal): SlotResult | Promise<SlotResult>;
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

/** The longest pause, in ms: a service that asks for a day is usually back long before. */
const MAX_PAUSE_MS = 60_000;

/** Waits for slots of `budgets`, which keep `rate`. */
export function slotWaits(budgets: EndpointBudgets, rate: PacedRate): SlotWaits {
  // Longer queues are useless: more messages than this cannot start in time.
  const windows = Math.floor(rate.maxWaitMs / rate.windowMs) + 1;
  const queues = holderQueues((endpoint) => limitFor(rate, endpoint) * windows);
  const waits: Waits = { budgets, rate, queues };
  return {
    take: (request, signal) => take(waits, request, signal),
    askEarly: (request) =>
      earlySlot(async (certainty, signal) => take(waits, { ...request, certainty }, signal)),
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

/** Reserves a slot and waits until it has come. */
function take(waits: Waits, request: TakeRequest, signal: AbortSignal): SlotResult | Promise<SlotResult> {
  const taking = { request, signal, deadline: performance.now() + waits.rate.maxWaitMs };
  const reserved = reserve(waits, taking);
  return 'askedAt' in reserved
    ? startReserved(waits, taking, reserved)
    : reserved.then((one) => startReserved(waits, taking, one));
}

/** Waits until a slot has come that was reserved. */
function startReserved(
  { budgets }: Waits,
  { request, signal, deadline }: Taking,
  timed: TimedReservation,
): SlotResult | Promise<SlotResult> {
  const { askedAt, reservation, isOld } = timed;
  if (reservation.state !== 'granted')
    return { reservation: { ...reservation, waitMs: retryAfterMs(reservation) } };
  const waitLeftMs = Math.max(0, deadline - performance.now());
  const { endpoint } = request;
  const slot = { endpoint, ticket: reservation.ticket, startedAt: askedAt, waitLeftMs, onTrial: false };
  const isDueNow = reservation.waitMs <= 0 && !isOld && !signal.aborted;
  if (isDueNow) {
    slot.onTrial = reservation.onTrial;
    return { slot, reservation: { ...reservation, resetMs: leftOf(reservation, askedAt) } };
  }
  return waitForSlot({ budgets, slot, signal }, timed);
}

async function waitForSlot(
  starting: Starting,
  { askedAt, reservation, isOld }: TimedReservation,
): Promise<SlotResult> {
  const { slot } = starting;
  const tooLongMs = isOld ? await startOrWait(starting) : await waitForStart(starting, reservation);
  const resetMs = leftOf(reservation, askedAt);
  if (tooLongMs > 0) return { reservation: { ...reservation, waitMs: tooLongMs, resetMs } };
  return { slot, reservation: { ...reservation, resetMs } };
}

function leftOf({ resetMs }: Reservation, askedAt: number): number {
  return Math.max(0, resetMs - (performance.now() - askedAt));
}

const pauseOf = (askedMs: number) => ({ believedMs: Math.min(askedMs, MAX_PAUSE_MS), askedMs });

function isDelayed({ startedAt }: EndpointSlot): boolean {
  return performance.now() - startedAt > MAX_START_AGE_MS;
}
