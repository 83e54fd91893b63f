import type { ResumptionTurn } from '../relay/message/resumption-attempt.ts';
import { abortableSleep } from './abortable-sleep.ts';
import { type EndpointBudgets, limitFor, type Rate } from './budgets.ts';
import { type EnterQueues, holderQueues } from './holder-queues.ts';
import { type Holders, namesOf } from './holders.ts';
import { type EndpointSlot, type SlotWaits, slotWaits, waitForStart } from './slot-waits.ts';

/** A stream that the relay wants to resume: whose it is, and at which endpoint. */
export interface ResumptionRequest {
  /** `namespace/bot`. */
  readonly endpoint: string;
  readonly holders: Holders;
}

/**
 * Waits until a stream may be resumed; only the signal ends the wait, and gives the place back. Rejects with the
 * signal's reason, or with Problem `session_store_unavailable` if the budget is out of reach.
 */
export type TakeResumptionTurn = (request: ResumptionRequest, signal: AbortSignal) => Promise<ResumptionTurn>;

/** The one holder of the slots of all resumptions. No user or address has this name, since those are hashes. */
const HOLDER = 'resumption';
/** With one future slot for all of them, resumptions leave at least every second slot to messages that wait. */
const MAX_FUTURE_SLOTS = 1;
/** The default of `yieldMs`. */
const YIELD_MS = 50;
/** The longest wait that is asked of the budget, in ms. If the slot comes later, it is requested again. */
const MAX_WAIT_MS = 3_600_000;

/** What all turns share. */
interface Turns {
  readonly budgets: EndpointBudgets;
  readonly rate: Rate;
  readonly slots: SlotWaits;
  readonly yieldMs: number;
  readonly enterQueues: EnterQueues;
}

/**
 * Makes the function that takes turns for resumptions. Like a single user, all resumptions of an endpoint together
 * have one future slot, over all instances, so that they take at most every second slot while new messages wait. In
 * each instance they are served by user in turn. The queues have no limit of their own: each resumption is of a stream
 * that has a place. `yieldMs` is how much later than new messages they ask for a slot that has become free.
 */
export function resumptionTurns(
  budgets: EndpointBudgets,
  rate: Rate,
  yieldMs = YIELD_MS,
): TakeResumptionTurn {
  const unlimited = { ...rate, maxWaitMs: Number.POSITIVE_INFINITY };
  const enterQueues = holderQueues(() => Number.POSITIVE_INFINITY);
  const turns = { budgets, rate, slots: slotWaits(budgets, unlimited), yieldMs, enterQueues };
  return async (request, signal) => turnWith(turns.slots, await takeTurn(turns, request, signal), signal);
}

function turnWith(slots: SlotWaits, first: EndpointSlot, signal: AbortSignal): ResumptionTurn {
  let slot = first;
  return {
    async renewSlot() {
      await slots.renew(slot, signal);
    },
    sent: () => slots.sent(slot),
    async takeExtraSlot() {
      const extra = await slots.takeExtra(slot, signal);
      // It is never a number here, since these waits have no limit.
      if (typeof extra !== 'number') slot = extra;
    },
    refused: (askedMs) => slots.pauseAfterRefusal(slot.endpoint, askedMs),
  };
}

/** Waits in the queues and then for the slot. The next in the queues follows a little after the start. */
async function takeTurn(
  turns: Turns,
  request: ResumptionRequest,
  signal: AbortSignal,
): Promise<EndpointSlot> {
  const { rate, enterQueues } = turns;
  const { endpoint, holders } = request;
  const names = [...namesOf(holders), HOLDER];
  const leave = await enterQueues({ endpoint, holders: names }, Number.POSITIVE_INFINITY, signal);
  if (!leave) throw new Error('a queue without a limit is full');
  const yieldMs = Math.min(turns.yieldMs, rate.windowMs / limitFor(rate, endpoint) / 2);
  try {
    const slot = await waitForSlot(turns, { endpoint, yieldMs }, signal);
    setTimeout(leave, yieldMs);
    return slot;
  } catch (error) {
    leave();
    throw error;
  }
}

/** Asks the budget until it grants a slot, and waits until that has come. */
async function waitForSlot(
  { budgets }: Turns,
  { endpoint, yieldMs }: { readonly endpoint: string; readonly yieldMs: number },
  signal: AbortSignal,
): Promise<EndpointSlot> {
  const request = { endpoint, holders: [HOLDER], maxWaitMs: MAX_WAIT_MS, maxFutureSlots: MAX_FUTURE_SLOTS };
  for (;;) {
    const startedAt = performance.now();
    const reservation = await budgets.reserve(request);
    if (reservation.state === 'granted') {
      const { ticket } = reservation;
      const slot: EndpointSlot = { endpoint, ticket, startedAt, waitLeftMs: Number.POSITIVE_INFINITY };
      await waitForStart({ budgets, slot, signal }, reservation.waitMs);
      return slot;
    }
    await abortableSleep(Math.min(reservation.waitMs, MAX_WAIT_MS) + yieldMs, signal);
  }
}
