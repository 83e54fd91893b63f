import { setTimeout as sleep } from 'node:timers/promises';
import { type EndpointBudgets, limitFor, type Rate, type Reservation, type Start } from './budgets.ts';
import { waitingLines } from './waiting-lines.ts';

/** A slot of an endpoint's budget that a message has. */
export interface EndpointSlot {
  readonly endpoint: string;
  readonly ticket: string;
  /** When the budget was asked whether the message may start, by `performance.now()` in ms. */
  startedAt: number;
  /** How long the message may still wait for a slot, in ms. */
  waitLeftMs: number;
  /** Whether the message is the one that shows whether the service takes messages again. */
  onTrial: boolean;
}

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

/** What timers and round trips may add to a wait before it counts as too long, in ms. */
const LATE_MS = 100;
/** A message that would leave later than this after its start was held up: by a new connection, or by a busy process. */
const HELD_UP_MS = 5;
/** How much longer than its wait a message may stand behind others for which the budget is asked, in ms. */
const ANSWERS_MS = 500;
/** A longer pause than this is not believed, in ms: a service that asks for a day is back long before. */
const MAX_PAUSE_MS = 60_000;

export function slotWaits(budgets: EndpointBudgets, rate: PacedRate): SlotWaits {
  const { windowMs, maxWaitMs } = rate;
  const lines = waitingLines();
  // More messages than this cannot all start in time.
  const longestLine = (endpoint: string) => limitFor(rate, endpoint) * (Math.floor(maxWaitMs / windowMs) + 1);

  /** Stands in the lines of all holders, one after the other; returns what leaves them, or nothing if there is no place in time. */
  async function standInLines(
    { endpoint, holders }: Wanted,
    deadline: number,
    signal: AbortSignal,
  ): Promise<(() => void) | undefined> {
    const left: (() => void)[] = [];
    const leave = () => {
      for (const one of left) one();
    };
    try {
      for (const [n, holder] of holders.entries()) {
        const line = `${holder} ${endpoint}`;
        if (lines.length(line) >= longestLine(endpoint)) return void leave();
        left.push(await lines.enter(line, n > 0 ? until(deadline, signal) : signal));
      }
      return leave;
    } catch (error) {
      leave();
      if (signal.aborted) throw error;
      return undefined;
    }
  }

  async function reserve(wanted: Wanted, signal: AbortSignal): Promise<Asked> {
    const deadline = performance.now() + maxWaitMs;
    const leave = await standInLines(wanted, deadline, signal);
    if (!leave) return { askedAt: performance.now(), reservation: NO_PLACE(windowMs) };
    try {
      for (;;) {
        const askedAt = performance.now();
        const leftMs = Math.max(0, deadline - askedAt);
        const reservation = await budgets.reserve({ ...wanted, maxWaitMs: leftMs });
        if (reservation.state !== 'share_taken' || reservation.waitMs > leftMs)
          return { askedAt, reservation };
        await interruptible(reservation.waitMs, signal);
      }
    } finally {
      leave();
    }
  }

  /** Waits until the slot has come. Returns 0, or how long it would still have taken in ms if that is too long. */
  async function untilStart(slot: EndpointSlot, first: Start, signal: AbortSignal): Promise<number> {
    const deadline = performance.now() + slot.waitLeftMs;
    let started = false;
    try {
      let start = first;
      while (start.waitMs > 0) {
        if (performance.now() + start.waitMs > deadline + LATE_MS) return toldMs(start);
        await interruptible(start.waitMs, signal);
        slot.startedAt = performance.now();
        start = await budgets.start(slot.endpoint, slot.ticket);
      }
      signal.throwIfAborted();
      started = true;
      slot.onTrial = start.onTrial;
      return 0;
    } finally {
      slot.waitLeftMs = Math.max(0, deadline - performance.now());
      if (!started) giveBack(slot);
    }
  }

  /** If nobody hears this, the slot passes unused. */
  function giveBack({ endpoint, ticket }: EndpointSlot): void {
    budgets.cancel(endpoint, ticket).catch(() => {});
  }

  /** What the budget answers; without an answer the slot is given back, since the budget may have heard the question. */
  async function answered<T>(slot: EndpointSlot, answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      giveBack(slot);
      throw error;
    }
  }

  /** Starts a message that has a slot already, or waits until it can. Returns 0, or how long that takes if it is too long. */
  async function startNow(slot: EndpointSlot, signal: AbortSignal): Promise<number> {
    slot.startedAt = performance.now();
    return untilStart(slot, await answered(slot, budgets.start(slot.endpoint, slot.ticket)), signal);
  }

  return {
    async take(wanted, signal) {
      const cameAt = performance.now();
      const { askedAt, reservation } = await reserve(wanted, signal);
      if (reservation.state !== 'granted')
        return { reservation: { ...reservation, waitMs: toldMs(reservation) } };
      const waitLeftMs = Math.max(0, maxWaitMs - (performance.now() - cameAt));
      const { endpoint } = wanted;
      const slot = { endpoint, ticket: reservation.ticket, startedAt: askedAt, waitLeftMs, onTrial: false };
      const tooLongMs = await untilStart(slot, reservation, signal);
      const resetMs = Math.max(0, reservation.resetMs - (performance.now() - askedAt));
      if (tooLongMs > 0) return { reservation: { ...reservation, waitMs: tooLongMs, resetMs } };
      return { slot, reservation: { ...reservation, resetMs } };
    },
    async takeAgain(slot, askedMs, signal) {
      slot.onTrial = false;
      const pause = { believedMs: Math.min(askedMs, MAX_PAUSE_MS), askedMs };
      await answered(slot, budgets.penalize(slot.endpoint, slot.ticket, pause));
      return startNow(slot, signal);
    },
    async leave(slot, signal) {
      return isHeldUp(slot) ? startNow(slot, signal) : 0;
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
      const startedAt = performance.now();
      const waitLeftMs = windowMs + maxWaitMs;
      const more = { endpoint, ticket: `${ticket}+`, startedAt, waitLeftMs, onTrial: false };
      const start = await answered(more, budgets.start(endpoint, more.ticket));
      const tooLongMs = await untilStart(more, start, signal);
      return tooLongMs > 0 ? tooLongMs : more;
    },
  };
}

type Wanted = Parameters<SlotWaits['take']>[0];

interface Asked {
  readonly reservation: Reservation;
  /** When the budget was asked for it, by `performance.now()` in ms. */
  readonly askedAt: number;
}

/** When it is worth another try at the latest: while a message is on trial, when that is over. */
const toldMs = ({ waitMs, judgedMs }: Start) => Math.max(waitMs, judgedMs);

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

/**
 * Aborts with `signal`, or soon after `deadline`: in a second line, those who came later and wait for longer may stand
 * in front. Where nobody waits, it is the budget's answers for those in front that take their time.
 */
function until(deadline: number, signal: AbortSignal): AbortSignal {
  const leftMs = Math.ceil(Math.max(0, deadline - performance.now()) + ANSWERS_MS);
  return AbortSignal.any([signal, AbortSignal.timeout(leftMs)]);
}

/** Not a little less than `ms`: a timer counts in whole ms, and may come up to one early. */
async function interruptible(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(Math.ceil(ms) + 1, undefined, { signal });
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  }
}
