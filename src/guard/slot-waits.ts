import { setTimeout as sleep } from 'node:timers/promises';
import type { EndpointSlot } from '../locals.ts';
import { type EndpointBudgets, limitFor, type Rate, type Reservation } from './budgets.ts';
import { waitingLines } from './waiting-lines.ts';

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
  /** Waits until a message to `endpoint` may start. Those of one holder start in the order of the calls. */
  take(wish: { endpoint: string; holder: string }, signal: AbortSignal): Promise<Turn>;
  /**
   * Takes the message that the service has refused, with all others to its endpoint, out for `pauseMs`, and
   * waits until it may start again; false if that is longer than it may still wait.
   */
  takeAgain(slot: EndpointSlot, pauseMs: number, signal: AbortSignal): Promise<boolean>;
  /**
   * To be asked right before the message leaves for the service. One that was held up since its start counts from
   * now, and waits if there is no room now; false if that is longer than it may still wait.
   */
  leave(slot: EndpointSlot, signal: AbortSignal): Promise<boolean>;
  /** To be told when the message has left: one that was held up on the last step as well counts from then. */
  sent(slot: EndpointSlot): void;
  /**
   * Takes one more slot for a message that must be sent a second time beside the first, in front of those that
   * wait. That may take a window and the longest wait, however long the message has waited before: it would be
   * lost for no fault of its own. Returns the slot, which has come; none if it does not come in that time.
   */
  takeOneMore(slot: EndpointSlot, signal: AbortSignal): Promise<EndpointSlot | undefined>;
}

/** What timers and round trips may add to a wait before it counts as too long, in ms. */
const LATE_MS = 100;
/** A message that would leave later than this after its start was held up: by a new connection, or by a busy process. */
const HELD_UP_MS = 5;

export function slotWaits(budgets: EndpointBudgets, rate: PacedRate): SlotWaits {
  const { windowMs, maxWaitMs } = rate;
  const lines = waitingLines();
  // More messages than this cannot all start in time.
  const longestLine = (endpoint: string) => limitFor(rate, endpoint) * (Math.floor(maxWaitMs / windowMs) + 1);

  async function reserve(endpoint: string, holder: string, signal: AbortSignal): Promise<Asked> {
    const deadline = performance.now() + maxWaitMs;
    const line = `${holder} ${endpoint}`;
    if (lines.length(line) >= longestLine(endpoint)) return { askedAt: 0, reservation: NO_PLACE(windowMs) };
    const leave = await lines.enter(line, signal);
    try {
      for (;;) {
        const askedAt = performance.now();
        const leftMs = Math.max(0, deadline - askedAt);
        const reservation = await budgets.reserve({ endpoint, holder, maxWaitMs: leftMs });
        if (reservation.state !== 'share_taken' || reservation.waitMs > leftMs)
          return { askedAt, reservation };
        await interruptible(reservation.waitMs, signal);
      }
    } finally {
      leave();
    }
  }

  /** Waits until the slot has come. Returns 0, or how long it would still have taken in ms if that is too long. */
  async function untilStart(slot: EndpointSlot, waitMs: number, signal: AbortSignal): Promise<number> {
    const deadline = performance.now() + slot.waitLeftMs;
    let started = false;
    try {
      let leftMs = waitMs;
      while (leftMs > 0) {
        if (performance.now() + leftMs > deadline + LATE_MS) return leftMs;
        await interruptible(leftMs, signal);
        slot.startedAt = performance.now();
        leftMs = await budgets.start(slot.endpoint, slot.ticket);
      }
      signal.throwIfAborted();
      started = true;
      return 0;
    } finally {
      slot.waitLeftMs = Math.max(0, deadline - performance.now());
      // If nobody hears this, the slot passes unused.
      if (!started) budgets.cancel(slot.endpoint, slot.ticket).catch(() => {});
    }
  }

  /** Starts a message that has a slot already, or waits until it can; false if that is too long. */
  async function startNow(slot: EndpointSlot, signal: AbortSignal): Promise<boolean> {
    slot.startedAt = performance.now();
    return (await untilStart(slot, await budgets.start(slot.endpoint, slot.ticket), signal)) === 0;
  }

  return {
    async take({ endpoint, holder }, signal) {
      const cameAt = performance.now();
      const { askedAt, reservation } = await reserve(endpoint, holder, signal);
      if (reservation.state !== 'granted') return { reservation };
      const waitLeftMs = Math.max(0, maxWaitMs - (performance.now() - cameAt));
      const slot = { endpoint, ticket: reservation.ticket, startedAt: askedAt, waitLeftMs };
      const tooLongMs = await untilStart(slot, reservation.waitMs, signal);
      const resetMs = Math.max(0, reservation.resetMs - (performance.now() - askedAt));
      if (tooLongMs > 0) return { reservation: { ...reservation, waitMs: tooLongMs, resetMs } };
      return { slot, reservation: { ...reservation, resetMs } };
    },
    async takeAgain(slot, pauseMs, signal) {
      await budgets.penalize(slot.endpoint, slot.ticket, pauseMs);
      return startNow(slot, signal);
    },
    async leave(slot, signal) {
      return !isHeldUp(slot) || startNow(slot, signal);
    },
    sent(slot) {
      // If nobody hears this, the message counts from its start.
      if (isHeldUp(slot)) budgets.sent(slot.endpoint, slot.ticket).catch(() => {});
    },
    async takeOneMore({ endpoint, ticket }, signal) {
      const startedAt = performance.now();
      const more = { endpoint, ticket: `${ticket}+`, startedAt, waitLeftMs: windowMs + maxWaitMs };
      const tooLongMs = await untilStart(more, await budgets.start(endpoint, more.ticket), signal);
      return tooLongMs > 0 ? undefined : more;
    },
  };
}

interface Asked {
  readonly reservation: Reservation;
  /** When the budget was asked for it, by `performance.now()` in ms. */
  readonly askedAt: number;
}

function isHeldUp({ startedAt }: EndpointSlot): boolean {
  return performance.now() - startedAt > HELD_UP_MS;
}

/** A line that is too long to stand in. */
const NO_PLACE = (windowMs: number): Reservation => ({
  state: 'refused',
  waitMs: windowMs,
  ticket: '',
  remaining: 0,
  resetMs: windowMs,
});

/** Not a little less than `ms`: a timer counts in whole ms, and may come up to one early. */
async function interruptible(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(Math.ceil(ms) + 1, undefined, { signal });
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  }
}
