import { abortableSleep } from './abortable-sleep.ts';
import type { EndpointBudgets, Rate, Reservation } from './budgets.ts';
import type { Certainty } from './early-slots.ts';
import type { EnterQueues, HolderQueues, QueueRequest } from './holder-queues.ts';
import { giveBackOnError, MAX_START_AGE_MS } from './slot-starts.ts';

/**
 * The service's own rate, and how long messages may wait for it. Clients are told this rate; the budgets keep it with
 * the margin of `withJitterMargin`.
 */
export interface PacedRate extends Rate {
  /** How long a message may wait for its slots together, in ms; extra slots (`takeExtra`) have a wait of their own. */
  readonly maxWaitMs: number;
}

/** What all waits share. */
export interface Waits {
  readonly budgets: EndpointBudgets;
  readonly rate: PacedRate;
  readonly queues: HolderQueues;
}

/** The answer of a budget. */
export interface TimedReservation {
  readonly reservation: Reservation;
  /** When the reservation was requested, by `performance.now()` in ms. */
  readonly askedAt: number;
  /** Whether the slot was granted some time ago: it was not certain until now that the message is sent. */
  readonly isOld?: boolean;
}

/** A request for a slot. */
export interface TakeRequest extends QueueRequest {
  /** Undefined if the message is certain. */
  readonly certainty?: Certainty;
}

/** A message that takes a slot. */
export interface Taking {
  readonly request: TakeRequest;
  readonly signal: AbortSignal;
  /** Until when the message waits for a slot, by `performance.now()` in ms. */
  readonly deadline: number;
}

/** What the budget answers, or will answer. */
type Asked = TimedReservation | Promise<TimedReservation>;

/** What a message is to wait for: the queues, and the budget's first answer if that was asked already. */
interface Turn {
  readonly entered: ReturnType<EnterQueues>;
  readonly first: Asked | undefined;
}

/** Waits in the holders' queues, and then asks the budget until it grants or refuses a slot. */
export function reserve(waits: Waits, taking: Taking): Asked {
  const { request, signal, deadline } = taking;
  // Nobody can enter the queues between this and the budget's answer, if that is there at once.
  const isFirst = !request.certainty && waits.queues.areFree(request, signal);
  const first = isFirst ? ask(waits, taking) : undefined;
  if (first && 'askedAt' in first && !isShareTaken(first, deadline)) return first;
  const entered = waits.queues.enter(request, deadline, signal);
  return reserveInTurn(waits, taking, { entered, first });
}

/** As `reserve`, where something is to be waited for. */
async function reserveInTurn(
  waits: Waits,
  taking: Taking,
  { entered, first }: Turn,
): Promise<TimedReservation> {
  const { request, signal, deadline } = taking;
  const leave = await entered;
  if (!leave) return { askedAt: performance.now(), reservation: queueFull(waits.rate.windowMs) };
  try {
    const { certainty } = request;
    const early = certainty && (await reserveEarly(waits, request, certainty));
    if (early) return early;
    for (let asked = first; ; asked = undefined) {
      const timed = await (asked ?? ask(waits, taking));
      if (!isShareTaken(timed, deadline)) return timed;
      await abortableSleep(timed.reservation.waitMs, signal);
    }
  } finally {
    leave();
  }
}

/** Asks the budget once. */
function ask({ budgets }: Waits, { request, deadline }: Taking): Asked {
  const { endpoint, holders } = request;
  const askedAt = performance.now();
  const answer = budgets.reserve({ endpoint, holders, maxWaitMs: Math.max(0, deadline - askedAt) });
  return 'state' in answer
    ? { askedAt, reservation: answer }
    : answer.then((reservation) => ({ askedAt, reservation }));
}

/** Whether the holder has its share of slots, and will have another one in time. */
function isShareTaken({ askedAt, reservation }: TimedReservation, deadline: number): boolean {
  return reservation.state === 'share_taken' && reservation.waitMs <= Math.max(0, deadline - askedAt);
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
