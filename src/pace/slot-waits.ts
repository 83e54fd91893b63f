import { type EndpointBudgets, limitFor, type Rate, type Reservation } from './budgets.ts';
import { holderLines, type LinesWish, type StandInLines } from './holder-lines.ts';
import { interruptible } from './interruptible.ts';
import { answered, type EndpointSlot, startNow, toldMs, untilStart } from './slot-starts.ts';

export type { EndpointSlot } from './slot-starts.ts';

/** What clients are told of a budget, and how long a message may wait for its slots altogether, in ms. */
export interface PacedRate extends Rate {
  readonly maxWaitMs: number;
}

/** How a wish for a slot ended. */
export interface Turn {
  /** The slot, which has come; none if there is none in time. */
  readonly slot?: EndpointSlot;
  /** What the budget said, with `resetMs` from now; without a slot, its `waitMs` says how long it would have taken. */
  readonly reservation: Reservation;
}

/** Waits for slots of endpoints' budgets. All reject with the signal's reason when that aborts, and give the slot back. */
export interface SlotWaits {
  /**
   * Waits until a message to `endpoint` may start. Those of the first holder start in the order of the calls; the
   * first of each of them stand in one line for the second holder.
   */
  take(wish: { endpoint: string; holders: readonly string[] }, signal: AbortSignal): Promise<Turn>;
  /**
   * Takes the message that the service has refused, with all others to its endpoint, out for the `askedMs` that the
   * service has asked for, but a minute at most, and waits until it may start again. Returns 0, or how long that
   * takes in ms if it is longer than the message may still wait.
   */
  takeAgain(slot: EndpointSlot, askedMs: number, signal: AbortSignal): Promise<number>;
  /**
   * To be asked right before the message leaves for the service. One that was held up since its start counts from
   * now, and waits if there is no room now. Returns 0, or how long that takes in ms if it is longer than the message
   * may still wait.
   */
  leave(slot: EndpointSlot, signal: AbortSignal): Promise<number>;
  /** To be told when the message has left: one that was held up on the last step as well counts from then. */
  sent(slot: EndpointSlot): void;
  /** To be told whether the service has accepted the message; or not, also because it was given up. */
  judged(slot: EndpointSlot, accepted: boolean): void;
  /**
   * Takes one more slot for a message that must be sent a second time beside the first, in front of those that
   * wait. That may take a window and the longest wait, however long the message has waited before: it would be
   * lost for no fault of its own. Returns the slot, which has come, or how long it takes in ms if that is longer.
   */
  takeOneMore(slot: EndpointSlot, signal: AbortSignal): Promise<EndpointSlot | number>;
}

/** A message that would leave later than this after its start was held up: by a new connection, or by a busy process. */
const HELD_UP_MS = 5;
/** A longer pause than this is not believed, in ms: a service that asks for a day is back long before. */
const MAX_PAUSE_MS = 60_000;

/** Waits for slots of `budgets`, which keep `rate`. */
export function slotWaits(budgets: EndpointBudgets, rate: PacedRate): SlotWaits {
  // More messages than this cannot all start in time.
  const windows = Math.floor(rate.maxWaitMs / rate.windowMs) + 1;
  const standInLines = holderLines((endpoint) => limitFor(rate, endpoint) * windows);
  const waits: Waits = { budgets, rate, standInLines };
  return {
    async take(wanted, signal) {
      return take(waits, wanted, signal);
    },
    async takeAgain(slot, askedMs, signal) {
      slot.onTrial = false;
      const pause = { believedMs: Math.min(askedMs, MAX_PAUSE_MS), askedMs };
      const starting = { budgets, slot, signal };
      await answered(starting, budgets.penalize(slot.endpoint, slot.ticket, pause));
      return startNow(starting);
    },
    async leave(slot, signal) {
      return isHeldUp(slot) ? startNow({ budgets, slot, signal }) : 0;
    },
    sent(slot) {
      // If nobody hears this, the message counts from its start.
      if (isHeldUp(slot)) budgets.sent(slot.endpoint, slot.ticket).catch(() => {});
    },
    judged(slot, accepted) {
      if (!slot.onTrial) return;
      slot.onTrial = false;
      // If nobody hears this, the trial is over when its time is.
      budgets.judged(slot.endpoint, slot.ticket, accepted).catch(() => {});
    },
    async takeOneMore({ endpoint, ticket }, signal) {
      const waitLeftMs = rate.windowMs + rate.maxWaitMs;
      const more = { endpoint, ticket: `${ticket}+`, startedAt: 0, waitLeftMs, onTrial: false };
      const tooLongMs = await startNow({ budgets, slot: more, signal });
      return tooLongMs > 0 ? tooLongMs : more;
    },
  };
}

/** What all waits share. */
interface Waits {
  readonly budgets: EndpointBudgets;
  readonly rate: PacedRate;
  readonly standInLines: StandInLines;
}

interface Asked {
  readonly reservation: Reservation;
  /** When the budget was asked for it, by `performance.now()` in ms. */
  readonly askedAt: number;
}

/** Reserves a slot and waits until it has come. */
async function take(waits: Waits, wanted: LinesWish, signal: AbortSignal): Promise<Turn> {
  const { budgets, rate } = waits;
  const cameAt = performance.now();
  const { askedAt, reservation } = await reserve(waits, wanted, signal);
  if (reservation.state !== 'granted')
    return { reservation: { ...reservation, waitMs: toldMs(reservation) } };
  const waitLeftMs = Math.max(0, rate.maxWaitMs - (performance.now() - cameAt));
  const { endpoint } = wanted;
  const slot = { endpoint, ticket: reservation.ticket, startedAt: askedAt, waitLeftMs, onTrial: false };
  const tooLongMs = await untilStart({ budgets, slot, signal }, reservation);
  const resetMs = Math.max(0, reservation.resetMs - (performance.now() - askedAt));
  if (tooLongMs > 0) return { reservation: { ...reservation, waitMs: tooLongMs, resetMs } };
  return { slot, reservation: { ...reservation, resetMs } };
}

/** Stands in the holders' lines, and then asks the budget until it grants a slot or refuses one. */
async function reserve(waits: Waits, wanted: LinesWish, signal: AbortSignal): Promise<Asked> {
  const { budgets, rate, standInLines } = waits;
  const deadline = performance.now() + rate.maxWaitMs;
  const leave = await standInLines(wanted, deadline, signal);
  if (!leave) return { askedAt: performance.now(), reservation: NO_PLACE(rate.windowMs) };
  try {
    for (;;) {
      const askedAt = performance.now();
      const leftMs = Math.max(0, deadline - askedAt);
      const reservation = await budgets.reserve({ ...wanted, maxWaitMs: leftMs });
      if (reservation.state !== 'share_taken' || reservation.waitMs > leftMs) return { askedAt, reservation };
      await interruptible(reservation.waitMs, signal);
    }
  } finally {
    leave();
  }
}

function isHeldUp({ startedAt }: EndpointSlot): boolean {
  return performance.now() - startedAt > HELD_UP_MS;
}

/** A line that is too long to stand in. */
const NO_PLACE = (windowMs: number): Reservation => ({
  state: 'refused',
  waitMs: windowMs,
  judgedMs: 0,
  onTrial: false,
  ticket: '',
  remaining: 0,
  resetMs: windowMs,
});
