import { abortableSleep } from './abortable-sleep.ts';
import { type EndpointBudgets, limitFor, type Rate, type Reservation } from './budgets.ts';
import { holderQueues, type QueueRequest } from './holder-queues.ts';

/**
 * The service's own rate, and how long messages may wait for it. Clients are told this rate; the budgets keep it with
 * the margin of `withJitterMargin`.
 */
export interface PacedRate extends Rate {
  /**
   * How long a message may wait for all its slots together, in ms; extra slots (`takeExtra`) have a wait of their own.
   */
  readonly maxWaitMs: number;
}

/** The slot of a message in an endpoint's budget. */
export interface EndpointSlot {
  readonly endpoint: string;
  readonly ticket: string;
  /** When the budget was last asked whether the message may start, by `performance.now()` in ms. */
  startedAt: number;
  /** How long the message may still wait for a slot, in ms. */
  waitLeftMs: number;
}

/** The result of a wait for a slot. */
export interface SlotResult {
  /** The slot, whose time has come; undefined if there is none in time. */
  readonly slot?: EndpointSlot;
  /** The budget's answer, with `resetMs` from now; without a slot, `waitMs` is how long the wait would take. */
  readonly reservation: Reservation;
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
   * Call it when the service has answered 429. Pauses the endpoint for the `askedMs` that the service asked for, but at
   * most a minute, and waits until the message may start again. Returns 0, or the necessary wait in ms if it is longer
   * than the message may still wait.
   */
  takeAfterRefusal(slot: EndpointSlot, askedMs: number, signal: AbortSignal): Promise<number>;
  /** Pauses the endpoint in the same way after the refusal of a message that gets no further slot. */
  pauseAfterRefusal(endpoint: string, askedMs: number): Promise<void>;
  /**
   * Call it right before the message is sent. If it was delayed since its start, it counts from now, and waits if
   * there is no room in the budget now. Returns 0, or the necessary wait in ms if it is longer than the message may
   * still wait.
   */
  renew(slot: EndpointSlot, signal: AbortSignal): Promise<number>;
  /** Call it when the message was sent. If it was delayed again, it counts from now. */
  sent(slot: EndpointSlot): void;
  /**
   * Takes one more slot for a message that must be sent with another API key, ahead of the messages that wait. The
   * message may wait for a window and `maxWaitMs` more, since a refused key is not the client's fault.
   * Returns the slot, whose time has come, or the necessary wait in ms if that is longer.
   */
  takeExtra(slot: EndpointSlot, signal: AbortSignal): Promise<EndpointSlot | number>;
}

/** The longest pause, in ms: a service that asks for more usually takes messages again much earlier. */
const MAX_PAUSE_MS = 60_000;
/**
 * A message that is sent later than this after its start counts as delayed, in ms: by a new connection or a busy
 * process.
 */
const MAX_START_AGE_MS = 5;
/** How much later than its deadline a wait may end, because of timers and round trips, in ms. */
const LATE_MS = 100;

/** Waits for slots of `budgets`, which keep `rate`. */
export function slotWaits(budgets: EndpointBudgets, rate: PacedRate): SlotWaits {
  // Longer queues are useless: more messages than this cannot start in time.
  const windows = Math.floor(rate.maxWaitMs / rate.windowMs) + 1;
  const enterQueues = holderQueues((endpoint) => limitFor(rate, endpoint) * windows);

  /** Waits in the queues, and then asks the budget until it grants or refuses a slot. */
  async function reserve(request: QueueRequest, deadline: number, signal: AbortSignal) {
    const leave = await enterQueues(request, deadline, signal);
    if (!leave) return { askedAt: performance.now(), reservation: queueFull(rate.windowMs) };
    try {
      for (;;) {
        const askedAt = performance.now();
        const maxWaitMs = Math.max(0, deadline - askedAt);
        const reservation = await budgets.reserve({ ...request, maxWaitMs });
        const { state, waitMs } = reservation;
        if (state !== 'share_taken' || waitMs > maxWaitMs) return { askedAt, reservation };
        await abortableSleep(waitMs, signal);
      }
    } finally {
      leave();
    }
  }

  return {
    async take(request, signal) {
      const deadline = performance.now() + rate.maxWaitMs;
      const { askedAt, reservation } = await reserve(request, deadline, signal);
      if (reservation.state !== 'granted') return { reservation };
      const waitLeftMs = Math.max(0, deadline - performance.now());
      const { ticket } = reservation;
      const slot: EndpointSlot = { endpoint: request.endpoint, ticket, startedAt: askedAt, waitLeftMs };
      const tooLongMs = await waitForStart({ budgets, slot, signal }, reservation.waitMs);
      const resetMs = Math.max(0, reservation.resetMs - (performance.now() - askedAt));
      if (tooLongMs > 0) return { reservation: { ...reservation, waitMs: tooLongMs, resetMs } };
      return { slot, reservation: { ...reservation, resetMs } };
    },
    async takeAfterRefusal(slot, askedMs, signal) {
      try {
        await budgets.pause(slot.endpoint, Math.min(askedMs, MAX_PAUSE_MS), slot.ticket);
      } catch (error) {
        giveBack(budgets, slot);
        throw error;
      }
      return waitForStart({ budgets, slot, signal });
    },
    pauseAfterRefusal: (endpoint, askedMs) => budgets.pause(endpoint, Math.min(askedMs, MAX_PAUSE_MS)),
    async renew(slot, signal) {
      return isDelayed(slot) ? waitForStart({ budgets, slot, signal }) : 0;
    },
    sent(slot) {
      // If this fails, the message counts from its start.
      if (isDelayed(slot)) budgets.sent(slot.endpoint, slot.ticket).catch(() => {});
    },
    async takeExtra({ endpoint, ticket }, signal) {
      const waitLeftMs = rate.windowMs + rate.maxWaitMs;
      const extra: EndpointSlot = { endpoint, ticket: `${ticket}+`, startedAt: 0, waitLeftMs };
      const tooLongMs = await waitForStart({ budgets, slot: extra, signal });
      return tooLongMs > 0 ? tooLongMs : extra;
    },
  };
}

/** A slot whose message wants to start. */
interface Starting {
  readonly budgets: EndpointBudgets;
  readonly slot: EndpointSlot;
  /** When it aborts, the wait rejects with its reason, and the slot is given back. */
  readonly signal: AbortSignal;
}

/**
 * Waits until the message may start. `firstMs` is the first answer of the budget, if it was asked already. Returns 0, or
 * the remaining wait in ms if that is longer than the message may still wait. The slot of a message that does not start
 * is given back.
 */
export async function waitForStart({ budgets, slot, signal }: Starting, firstMs?: number): Promise<number> {
  const deadline = performance.now() + slot.waitLeftMs;
  const ask = () => {
    slot.startedAt = performance.now();
    return budgets.start(slot.endpoint, slot.ticket);
  };
  let hasStarted = false;
  try {
    let waitMs = firstMs ?? (await ask());
    while (waitMs > 0) {
      if (performance.now() + waitMs > deadline + LATE_MS) return waitMs;
      await abortableSleep(waitMs, signal);
      waitMs = await ask();
    }
    signal.throwIfAborted();
    hasStarted = true;
    return 0;
  } finally {
    slot.waitLeftMs = Math.max(0, deadline - performance.now());
    if (!hasStarted) giveBack(budgets, slot);
  }
}

/** If this fails, the slot passes unused. */
function giveBack(budgets: EndpointBudgets, { endpoint, ticket }: EndpointSlot): void {
  budgets.cancel(endpoint, ticket).catch(() => {});
}

/** The answer where a queue has no place, or the deadline passes in it. */
function queueFull(windowMs: number): Reservation {
  return { state: 'refused', waitMs: windowMs, ticket: '', remaining: 0, resetMs: windowMs };
}

function isDelayed({ startedAt }: EndpointSlot): boolean {
  return performance.now() - startedAt > MAX_START_AGE_MS;
}
