import { type EndpointBudgets, limitFor, MAX_FUTURE_SLOTS, type Rate, type SlotRequest } from './budgets.ts';

/** A past or future start. `at` is in whole µs, so that sums are exact. */
interface Slot {
  readonly at: number;
  readonly ticket: string;
}

/** The state of an endpoint. Times in µs. */
interface Endpoint {
  /** The slots of the last window and the future ones, in order of time. */
  slots: Slot[];
  pausedUntil: number;
}

/** At most `limit` starts in any interval of `window`, in µs. */
interface SlotLimit {
  readonly limit: number;
  readonly window: number;
}

const US_PER_MS = 1000;
/** From this number of endpoints on, idle ones are removed. */
const SWEEP_FROM = 1000;

/** The endpoint without slots older than a window, the time now in µs, and the endpoint's limit. */
type Current = (name: string) => {
  readonly endpoint: Endpoint;
  readonly at: number;
  readonly limit: SlotLimit;
};

/** The endpoints that are remembered. */
function endpointsOf(rate: Rate, now: () => number): Current {
  const window = rate.windowMs * US_PER_MS;
  const endpoints = new Map<string, Endpoint>();
  let nextSweepAt = 0;

  function sweep(at: number): void {
    nextSweepAt = at + window;
    for (const [name, { slots, pausedUntil }] of endpoints) {
      if (Math.max((slots.at(-1)?.at ?? 0) + window, pausedUntil) <= at) endpoints.delete(name);
    }
  }

  return (name) => {
    const at = Math.round(now() * US_PER_MS);
    if (endpoints.size >= SWEEP_FROM && at >= nextSweepAt) sweep(at);
    const endpoint = endpoints.get(name) ?? { slots: [], pausedUntil: 0 };
    endpoints.set(name, endpoint);
    endpoint.slots = endpoint.slots.filter((slot) => slot.at + window > at);
    return { endpoint, at, limit: { limit: limitFor(rate, name), window } };
  };
}

/**
 * Budgets as exact sliding windows in this process's memory, for one instance. `now` is a monotonic clock in ms.
 * `redis-budgets.ts` has the same algorithm in Lua; both pass the same tests.
 */
export function memoryBudgets(rate: Rate, now = () => performance.now()): EndpointBudgets {
  const current = endpointsOf(rate, now);
  let tickets = 0;
  return {
    async reserve(request) {
      const { endpoint, at, limit } = current(request.endpoint);
      const { slots, pausedUntil } = endpoint;
      const slotAt = firstSlot(slots, Math.max(at, pausedUntil), limit);
      const answer = { ticket: '', ...roomLeft(slots, at, limit) };
      const waitMs = (slotAt - at) / US_PER_MS;
      if (waitMs > request.maxWaitMs) return { ...answer, state: 'refused', waitMs };
      const shareAt = slotAt > at ? shareTakenUntil(slots, at, request) : undefined;
      if (shareAt !== undefined)
        return { ...answer, state: 'share_taken', waitMs: (shareAt - at) / US_PER_MS };
      const ticket = ticketOf(++tickets, request.holders);
      insert(slots, { at: slotAt, ticket });
      return { ...roomLeft(slots, at, limit), state: 'granted', waitMs, ticket };
    },
    async start(name, ticket) {
      const { endpoint, at, limit } = current(name);
      const own = endpoint.slots.find((slot) => slot.ticket === ticket);
      const others = withoutTicket(endpoint.slots, ticket);
      // Ignore future slots: their messages call `start` themselves, and then move behind this one if needed.
      const started = others.filter((slot) => slot.at <= at);
      const slotAt = slotBehindAll(started, Math.max(at, endpoint.pausedUntil, own?.at ?? 0), limit);
      insert(others, { at: slotAt, ticket });
      endpoint.slots = others;
      return (slotAt - at) / US_PER_MS;
    },
    async sent(name, ticket) {
      const { endpoint, at } = current(name);
      endpoint.slots = withoutTicket(endpoint.slots, ticket);
      insert(endpoint.slots, { at, ticket });
    },
    async cancel(name, ticket) {
      const { endpoint } = current(name);
      endpoint.slots = withoutTicket(endpoint.slots, ticket);
    },
    async pause(name, pauseMs, first) {
      const { endpoint, at, limit } = current(name);
      endpoint.pausedUntil = Math.max(endpoint.pausedUntil, at + pauseMs * US_PER_MS);
      const others = first === undefined ? endpoint.slots : withoutTicket(endpoint.slots, first);
      const future = others.filter((slot) => slot.at > at);
      const moved = first === undefined ? future : [{ at, ticket: first }, ...future];
      const slots = others.filter((slot) => slot.at <= at);
      for (const slot of moved) {
        const slotAt = slotBehindAll(slots, Math.max(endpoint.pausedUntil, slot.at), limit);
        insert(slots, { ...slot, at: slotAt });
      }
      endpoint.slots = slots;
    },
  };
}

/** A ticket is a growing number and the holders, with a space after each. */
const ticketOf = (order: number, holders: readonly string[]) => `${order} ${holders.join(' ')} `;
const orderOf = (ticket: string) => Number.parseInt(ticket, 10);

/** Inserts `slot` in order of time; slots of the same time are in the order of their tickets. */
function insert(slots: Slot[], slot: Slot): void {
  const isBefore = (other: Slot) =>
    other.at < slot.at || (other.at === slot.at && orderOf(other.ticket) < orderOf(slot.ticket));
  slots.splice(slots.findLastIndex(isBefore) + 1, 0, slot);
}

/** The slots of all other tickets, as a new list. */
function withoutTicket(slots: readonly Slot[], ticket: string): Slot[] {
  return slots.filter((slot) => slot.ticket !== ticket);
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
  const future = slots.filter((slot) => slot.at > at);
  const full = holders
    .map((holder) => future.filter(({ ticket }) => ticket.includes(` ${holder} `)))
    .filter((own) => own.length >= maxFutureSlots);
  return full.length > 0 ? Math.max(...full.map(([next]) => (next as Slot).at)) : undefined;
}

/** The first time from `from` on for one more slot after all of `slots`. */
function slotBehindAll(slots: readonly Slot[], from: number, { limit, window }: SlotLimit): number {
  return Math.max(from, (slots.at(-limit)?.at ?? -window) + window);
}

/** The first time from `from` on at which one more start leaves every window with at most `limit`. */
function firstSlot(slots: readonly Slot[], from: number, { limit, window }: SlotLimit): number {
  // How many slots are at or before the time of the last call of `fits`.
  let place = slots.findLastIndex((slot) => slot.at <= from) + 1;
  // With one more slot at `at`, any `limit + 1` in a row must span a window. Call it in order of time.
  const fits = (at: number) => {
    while (place < slots.length && (slots[place] as Slot).at <= at) place++;
    const timeOf = (i: number) => (i === place ? at : (slots[i < place ? i : i - 1] as Slot).at);
    for (let i = Math.max(0, place - limit); i <= place && i + limit <= slots.length; i++) {
      if (timeOf(i + limit) - timeOf(i) < window) return false;
    }
    return true;
  };
  if (fits(from)) return from;
  const behind = slots.find((slot) => slot.at + window > from && fits(slot.at + window));
  return (behind as Slot).at + window;
}
