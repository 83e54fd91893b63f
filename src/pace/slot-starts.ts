import type { EndpointBudgets, Start } from './budgets.ts';
import { interruptible } from './interruptible.ts';

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

/** A slot whose message is to start. */
export interface Starting {
  readonly budgets: EndpointBudgets;
  readonly slot: EndpointSlot;
  /** Ends the waiting, which then rejects with its reason; the slot is given back. */
  readonly signal: AbortSignal;
}

/** What timers and round trips may add to a wait before it counts as too long, in ms. */
const LATE_MS = 100;

/** When it is worth another try at the latest: while a message is on trial, when that is over. */
export const toldMs = ({ waitMs, judgedMs }: Start) => Math.max(waitMs, judgedMs);

/**
 * Starts a message that has a slot already, or waits until it can. Returns 0, or how long that takes in ms if it is
 * longer than the message may still wait.
 */
export async function startNow(starting: Starting): Promise<number> {
  const { budgets, slot } = starting;
  slot.startedAt = performance.now();
  return untilStart(starting, await answered(starting, budgets.start(slot.endpoint, slot.ticket)));
}

/**
 * Waits until the slot has come, of which the budget has said `first`. Returns 0, or how long it would still have
 * taken in ms if that is too long.
 */
export async function untilStart({ budgets, slot, signal }: Starting, first: Start): Promise<number> {
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
    if (!started) giveBack(budgets, slot);
  }
}

/** What the budget answers; without an answer the slot is given back, since the budget may have heard the question. */
export async function answered<T>({ budgets, slot }: Starting, answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    giveBack(budgets, slot);
    throw error;
  }
}

/** If nobody hears this, the slot passes unused. */
function giveBack(budgets: EndpointBudgets, { endpoint, ticket }: EndpointSlot): void {
  budgets.cancel(endpoint, ticket).catch(() => {});
}
