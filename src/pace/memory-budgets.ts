import {
  type EndpointBudgets,
  limitFor,
  type Pause,
  type Rate,
  type Reservation,
  type Start,
  TRIAL_LOOK_MS,
  WAITING_SHARE,
  type Wish,
} from './budgets.ts';
import { type Endpoint, type Endpoints, memoryEndpoints, US_PER_MS } from './memory-endpoints.ts';
import { isOnTrial, otherTrial, startAt } from './memory-trials.ts';
import {
  behindAll,
  countUpTo,
  firstSlot,
  insert,
  isOf,
  type Slot,
  type SlotLimit,
  ticketOf,
  withoutTicket,
} from './slots.ts';

/** What the budgets of all endpoints share. */
interface Budgets {
  readonly rate: Rate;
  readonly endpoints: Endpoints;
  /** How many have been given out. */
  tickets: number;
}

const LOOK = TRIAL_LOOK_MS * US_PER_MS;

/**
 * Exact sliding windows in this process's memory, for one instance. `now` is a monotonic clock in ms.
 * `redis-budgets.ts` does the same in Lua; both pass the same tests.
 */
export function memoryBudgets(rate: Rate, now = () => performance.now()): EndpointBudgets {
  const endpoints = memoryEndpoints(windowOf(rate), now);
  const budgets: Budgets = { rate, endpoints, tickets: 0 };
  return {
    async reserve(wish) {
      return reserve(budgets, wish);
    },
    async start(name, ticket) {
      return start(budgets, name, ticket);
    },
    async judged(name, ticket, accepted) {
      const [endpoint, at] = endpoints.current(name);
      if (!isOnTrial(endpoint, ticket)) return;
      endpoint.trial = undefined;
      // What was sent before a later refusal says nothing of what comes after that.
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
      endpoints.keep(name, paused(endpoint, { ticket, at, limit }, pause), at);
    },
  };
}

const windowOf = ({ windowMs }: Rate) => windowMs * US_PER_MS;

function slotLimit(rate: Rate, name: string): SlotLimit {
  return { limit: limitFor(rate, name), window: windowOf(rate) };
}

/** Finds the first slot that fits a wish, and takes it if it comes in time and the holders may have it. */
function reserve(budgets: Budgets, { endpoint: name, holders, maxWaitMs }: Wish): Reservation {
  const limit = slotLimit(budgets.rate, name);
  const [endpoint, at] = budgets.endpoints.current(name);
  const { slots } = endpoint;
  const judged = otherTrial(endpoint, '', at);
  const earliest = Math.max(at, endpoint.pausedUntil, judged > 0 ? at + LOOK : 0);
  const slotAt = firstSlot(slots, earliest, limit);
  const answer = (state: Reservation['state'], until: number) => ({
    state,
    waitMs: (until - at) / US_PER_MS,
    judgedMs: judged / US_PER_MS,
    onTrial: false,
    ticket: '',
    ...roomLeft(slots, at, limit),
  });
  if (slotAt - at > maxWaitMs * US_PER_MS) return answer('refused', slotAt);
  const shareAt = slotAt > at ? shareTakenUntil(slots, at, holders) : undefined;
  if (shareAt !== undefined) return answer('share_taken', shareAt);
  const ticket = ticketOf(++budgets.tickets, holders);
  insert(slots, { at: slotAt, ticket });
  budgets.endpoints.keep(name, endpoint, at);
  const first = startAt(endpoint, { ticket, slotAt, at }, budgets.rate);
  return { ...answer('granted', slotAt), ticket, ...first };
}

/** What clients are told of a budget with these slots, at the time `at`. */
function roomLeft(slots: readonly Slot[], at: number, { limit, window }: SlotLimit) {
  return {
    remaining: Math.max(0, limit - slots.length),
    resetMs: Math.max(0, (slots.at(-1)?.at ?? at - window) + window - at) / US_PER_MS,
  };
}

/** When each of the holders may have another slot that lies ahead, in µs; undefined if they may now. */
function shareTakenUntil(slots: readonly Slot[], at: number, holders: readonly string[]): number | undefined {
  const ahead = slots.slice(countUpTo(slots, at));
  const full = holders
    .map((holder) => ahead.filter(({ ticket }) => isOf(holder, ticket)))
    .filter((own) => own.length >= WAITING_SHARE);
  return full.length > 0 ? Math.max(...full.map(([next]) => (next as Slot).at)) : undefined;
}

/** Counts the message of `ticket` from now if it may start, and otherwise moves its slot. */
function start({ rate, endpoints }: Budgets, name: string, ticket: string): Start {
  const [endpoint, at] = endpoints.current(name);
  const slots = withoutTicket(endpoint.slots, ticket);
  const own = endpoint.slots.find((slot) => slot.ticket === ticket);
  // What lies ahead gives way to a slot that has come: it is asked again before it starts.
  const started = slots.filter((slot) => slot.at <= at);
  const look = otherTrial(endpoint, ticket, at) > 0 ? at + LOOK : 0;
  const from = Math.max(at, endpoint.pausedUntil, own?.at ?? 0, look);
  const slotAt = behindAll(started, from, slotLimit(rate, name));
  insert(slots, { at: slotAt, ticket });
  const kept = { ...endpoint, slots };
  endpoints.keep(name, kept, at);
  return startAt(kept, { ticket, slotAt, at }, rate);
}

/** A message that the service has refused at the time `at`, in µs. */
interface Refused {
  readonly ticket: string;
  readonly at: number;
  readonly limit: SlotLimit;
}

/** The endpoint with all that lies ahead moved behind the pause, the refused message first. */
function paused(endpoint: Endpoint, { ticket, at, limit }: Refused, pause: Pause): Endpoint {
  const pausedUntil = Math.max(endpoint.pausedUntil, at + pause.believedMs * US_PER_MS);
  const askedUntil = Math.max(endpoint.askedUntil, at + pause.askedMs * US_PER_MS);
  const others = withoutTicket(endpoint.slots, ticket);
  const slots = others.filter((slot) => slot.at <= at);
  const moved = [{ at, ticket }, ...others.filter((slot) => slot.at > at)];
  for (const slot of moved) {
    slots.push({ ...slot, at: behindAll(slots, Math.max(pausedUntil, slot.at), limit) });
  }
  return { slots, pausedUntil, askedUntil, trial: isOnTrial(endpoint, ticket) ? undefined : endpoint.trial };
}
