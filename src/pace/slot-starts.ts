import { abortableSleep } from './abortable-sleep.ts';
import type { EndpointBudgets, Reservation, StartAnswer } from './budgets.ts';

/** The slot of a message in an endpoint's budget. */
export interface EndpointSlot {
  readonly endpoint: string;
  readonly ticket: string;
  /** When the budget was last asked whether the message may start, by `performance.now()` in ms. */
  startedAt: number;
  /** How long the message may still wait for a slot, in ms. */
  waitLeftMs: number;
  /** Whether this message is sent to find out whether the service takes messages again. */
  onTrial: boolean;
}

/** The result of a wait for a slot. */
export interface SlotResult {
  /** The slot, whose time has come; undefined if there is none in time. */
  readonly slot?: EndpointSlot;
  /** The budget's answer, with `resetMs` from now; without a slot, `waitMs` is how long the wait would take. */
  readonly reservation: Reservation;
}

/** A slot whose message wants to start. */
export interface Starting {
  readonly budgets: EndpointBudgets;
  readonly slot: EndpointSlot;
  /** When it aborts, the wait rejects with its reason, and the slot is given back. */
  readonly signal: AbortSignal;
}

/** A slot, and the budgets that have granted it. */
interface Granted {
  readonly budgets: EndpointBudgets;
  readonly slot: Pick<EndpointSlot, 'endpoint' | 'ticket'>;
}

/** A message that is sent later than this after its start is delayed, in ms: by a new connection or a busy process. */
export const MAX_START_AGE_MS = 5;
/** How much later than its deadline a wait may end, because of timers and round trips, in ms. */
const LATE_MS = 100;

/** When another request can succeed: while a message is on trial, not before the trial ends. */
export const retryAfterMs = ({ waitMs, trialLeftMs }: StartAnswer) => Math.max(waitMs, trialLeftMs);

/**
 * Starts a message that has a slot, now or when the budget allows it. Returns 0, or the necessary wait in ms if it is
 * longer than the message may still wait.
 */
export async function startOrWait(starting: Starting): Promise<number> {
  const { budgets, slot } = starting;
  slot.startedAt = performance.now();
  return waitForStart(starting, await giveBackOnError(starting, budgets.start(slot.endpoint, slot.ticket)));
}

/**
 * Waits until the message may start; `first` is the budget's first answer. Returns 0, or the remaining wait in ms if
 * that is too long.
 */
export async function waitForStart({ budgets, slot, signal }: Starting, first: StartAnswer): Promise<number> {
  const deadline = performance.now() + slot.waitLeftMs;
  let started = false;
  try {
    let start = first;
    while (start.waitMs > 0) {
      if (performance.now() + start.waitMs > deadline + LATE_MS) return retryAfterMs(start);
      await abortableSleep(start.waitMs, signal);
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

/** Returns what `answer` resolves with. After an error the slot is given back: the budget may have reserved it. */
export async function giveBackOnError<T>({ budgets, slot }: Granted, answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    giveBack(budgets, slot);
    throw error;
  }
}

/** If this fails, the slot passes unused. */
function giveBack(budgets: EndpointBudgets, { endpoint, ticket }: Granted['slot']): void {
  budgets.cancel(endpoint, ticket).catch(() => {});
}
