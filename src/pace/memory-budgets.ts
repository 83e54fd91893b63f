import {
  type EndpointBudgets,
  limitFor,
  MAX_FUTURE_SLOTS,
  type Pause,
  type Rate,
  type Reservation,
  type SlotRequest,
  type StartAnswer,
  TRIAL_POLL_MS,
} from './budgets.ts';
import { type Endpoint, type Endpoints, memoryEndpoints, US_PER_MS } from './memory-endpoints.ts';
import { answerStart, isOnTrial, otherTrialLeft } from './memory-trials.ts';
import {
  countUpTo,
  firstSlot,
  insert,
  isHeldBy,
  type Slot,
  type SlotLimit,
  slotBehindAll,
  ticketOf,
  withoutTicket,
} from './slots.ts';

/** What the budgets of all endpoints share. */
interface Budgets {
  readonly rate: Rate;
  readonly endpoints: Endpoints;
  /** How many tickets have been made. */
  tickets: number;
}

const TRIAL_POLL_US = TRIAL_POLL_MS * US_PER_MS;

/**
 * Budgets as exact sliding windows in this process's memory, for one instance. `now` is a monotonic clock in ms.
 * `redis-budgets.ts` has the same algorithm in Lua; both pass the same tests.
 */
export function memoryBudgets(rate: Rate, now = () => performance.now()): EndpointBudgets {
  const endpoints = memoryEndpoints(windowOf(rate), now);
  const budgets: Budgets = { rate, endpoints, tickets: 0 };
  return {
    reserve: (request) => reserve(budgets, request),
    async start(name, ticket) {
      return start(budgets, name, ticket);
    },
    async judged(name, ticket, accepted) {
      const [endpoint, at] = endpoints.current(name);
      if (!isOnTrial(endpoint, ticket)) return;
      endpoint.trial = undefined;
      // If a later 429 has started a new pause, an older acceptance must not end it.
      if (accepted && endpoint.pausedUntil <= at) endpoint.askedUntil = 0;
    },
    async sent(name, ticket) {
      const [endpoint, at] = endpoints.current(name);
      const slots = withoutTicket(endpoint.slots, ticket);
      insert(slots, { at, ticket });
      endpoints.keep(name, { ...endpoint, slots }, at);
    },
    async cancel(name, ticket) {
      const [endpoint] = endpoints.current(name);
      const place = endpoint.slots.findLastIndex((slot) => slot.ticket === ticket);
      if (place >= 0) endpoint.slots.splice(place, 1);
      if (isOnTrial(endpoint, ticket)) endpoint.trial = undefined;
    },
    async penalize(name, ticket, pause) {
      const [endpoint, at] = endpoints.current(name);
      const limit = slotLimit(rate, name);
      endpoints.keep(name, afterRefusal(endpoint, { ticket, at, limit }, pause), at);
    },
  };
}

const windowOf = ({ windowMs }: Rate) => windowMs * US_PER_MS;

function slotLimit(rate: Rate, name: string): SlotLimit {
  return { limit: limitFor(rate, name), window: windowOf(rate) };
}

/** Finds the first slot that fits, and reserves it if it comes in time and the holders may have it. */
function reserve(budgets: Budgets, request: SlotRequest): Reservation {
  const { endpoint: name, holders, maxWaitMs, isEarly = false } = request;
  const limit = slotLimit(budgets.rate, name);
  const [endpoint, at] = budgets.endpoints.current(name);
  const { slots } = endpoint;
  const trialLeft = otherTrialLeft(endpoint, '', at);
  const earliest = Math.max(at, endpoint.pausedUntil, trialLeft > 0 ? at + TRIAL_POLL_US : 0);
  const slotAt = firstSlot(slots, earliest, limit);
  const answer = (state: Reservation['state'], until: number): Reservation => {
    const { remaining, resetMs } = roomLeft(slots, at, limit);
    const waitMs = (until - at) / US_PER_MS;
    return {
      state,
      waitMs,
      trialLeftMs: trialLeft / US_PER_MS,
      onTrial: false,
      ticket: '',
      remaining,
      resetMs,
    };
  };
  const isTooLate = slotAt - at > maxWaitMs * US_PER_MS;
  if (isTooLate || (isEarly && !isSpare(endpoint, at, limit))) return answer('refused', slotAt);
  const shareAt = slotAt > at ? shareTakenUntil(slots, at, request) : undefined;
  if (shareAt !== undefined) return answer('share_taken', shareAt);
  const ticket = ticketOf(++budgets.tickets, holders);
  insert(slots, { at: slotAt, ticket });
  budgets.endpoints.keep(name, endpoint, at);
  const { waitMs, trialLeftMs, onTrial } = answerStart(endpoint, { ticket, slotAt, at }, budgets.rate);
  const { remaining, resetMs } = roomLeft(slots, at, limit);
  return { state: 'granted', waitMs, trialLeftMs, onTrial, ticket, remaining, resetMs };
}

/** Whether a message may have a slot that it may turn out not to need. */
function isSpare({ slots, askedUntil }: Endpoint, at: number, { limit }: SlotLimit): boolean {
  return askedUntil <= at && (slots.length + 1) * 2 <= limit;
}

/** What clients are told about a budget with these slots, at the time `at`. */
function roomLeft(slots: readonly Slot[], at: number, { limit, window }: SlotLimit) {
  return {
    remaining: Math.max(0, limit - slots.length),
    resetMs: Math.max(0, (slots.at(-1)?.at ?? at - window) + window - at) / US_PER_MS,
  };
}

/** When all of the holders may have another future slot, in µs; undefined if they may now. */
function shareTakenUntil(slots: readonly Slot[], at: number, request: SlotRequest): number | undefined {
  const { holders, maxFutureSlots = MAX_FUTURE_SLOTS } = request;
  const ahead = slots.slice(countUpTo(slots, at));
  const full = holders
    .map((holder) => ahead.filter(({ ticket }) => isHeldBy(holder, ticket)))
    .filter((own) => own.length >= maxFutureSlots);
  return full.length > 0 ? Math.max(...full.map(([next]) => (next as Slot).at)) : undefined;
}

/** Counts the message of `ticket` from now if it may start; otherwise moves its slot. */
function start({ rate, endpoints }: Budgets, name: string, ticket: string): StartAnswer {
  const [endpoint, at] = endpoints.current(name);
  const slots = withoutTicket(endpoint.slots, ticket);
  const own = endpoint.slots.find((slot) => slot.ticket === ticket);
  // Ignore future slots: their messages call `start` themselves, and then move behind this one if needed.
  const started = slots.filter((slot) => slot.at <= at);
  const pollAt = otherTrialLeft(endpoint, ticket, at) > 0 ? at + TRIAL_POLL_US : 0;
  const from = Math.max(at, endpoint.pausedUntil, own?.at ?? 0, pollAt);
  const slotAt = slotBehindAll(started, from, slotLimit(rate, name));
  insert(slots, { at: slotAt, ticket });
  const kept = { ...endpoint, slots };
  endpoints.keep(name, kept, at);
  return answerStart(kept, { ticket, slotAt, at }, rate);
}

/** A message to which the service has answered 429 at the time `at`, in µs. */
interface Refused {
  readonly ticket: string;
  readonly at: number;
  readonly limit: SlotLimit;
}

/** The endpoint with all future slots moved behind the pause; the refused message is the first of them, if it has one. */
function afterRefusal(endpoint: Endpoint, { ticket, at, limit }: Refused, pause: Pause): Endpoint {
  const pausedUntil = Math.max(endpoint.pausedUntil, at + pause.believedMs * US_PER_MS);
  const askedUntil = Math.max(endpoint.askedUntil, at + pause.askedMs * US_PER_MS);
  const others = pause.withoutSlot ? endpoint.slots : withoutTicket(endpoint.slots, ticket);
  const slots = others.filter((slot) => slot.at <= at);
  const moved = [...(pause.withoutSlot ? [] : [{ at, ticket }]), ...others.filter((slot) => slot.at > at)];
  for (const slot of moved) {
    slots.push({ ...slot, at: slotBehindAll(slots, Math.max(pausedUntil, slot.at), limit) });
  }
  return { slots, pausedUntil, askedUntil, trial: isOnTrial(endpoint, ticket) ? undefined : endpoint.trial };
}
