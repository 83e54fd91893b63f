import { type EndpointBudgets, limitFor, MAX_FUTURE_SLOTS, type Rate } from '../../../src/pace/budgets.ts';

interface Slot {
  at: number;
  readonly ticket: string;
}

/**
 * What budgets must answer, by trying every time at which a slot leaves a window, since nothing else makes room. A slot
 * fits if no window with it has more than the limit; one behind all others fits if the window that ends with it has not.
 */
export function modelBudgets(rate: Rate, now: () => number): EndpointBudgets {
  const { windowMs } = rate;
  const endpoints = new Map<string, { slots: Slot[]; pausedUntil: number }>();
  /** Those of each ticket. */
  const holdersOf = new Map<string, readonly string[]>();
  const at = (name: string) => {
    const endpoint = endpoints.get(name) ?? { slots: [], pausedUntil: 0 };
    endpoints.set(name, endpoint);
    endpoint.slots = endpoint.slots.filter((slot) => slot.at + windowMs > now());
    return { endpoint, limit: limitFor(rate, name) };
  };
  const first = (from: number, slots: readonly Slot[], fits: (time: number) => boolean) => {
    const times = [from, ...slots.map((slot) => slot.at + windowMs)];
    return Math.min(...times.filter((time) => time >= from && fits(time)));
  };
  const fitsAmong = (slots: readonly Slot[], limit: number) => (time: number) => {
    const times = [...slots.map((slot) => slot.at), time];
    const inWindow = (from: number) => times.filter((one) => one >= from && one < from + windowMs).length;
    return times.every((from) => from > time || from + windowMs <= time || inWindow(from) <= limit);
  };
  const fitsBehind = (slots: readonly Slot[], limit: number) => (time: number) =>
    slots.filter((slot) => slot.at > time - windowMs).length < limit;
  const inOrder = (slots: readonly Slot[]) =>
    slots.toSorted((one, other) => one.at - other.at || Number(one.ticket) - Number(other.ticket));
  const others = (slots: readonly Slot[], ticket: string | undefined) =>
    slots.filter((slot) => slot.ticket !== ticket);

  return {
    async reserve({ endpoint: name, holders, maxWaitMs, maxFutureSlots = MAX_FUTURE_SLOTS }) {
      const { endpoint, limit } = at(name);
      const time = first(
        Math.max(now(), endpoint.pausedUntil),
        endpoint.slots,
        fitsAmong(endpoint.slots, limit),
      );
      const ownOf = (holder: string) =>
        inOrder(
          endpoint.slots.filter((slot) => slot.at > now() && holdersOf.get(slot.ticket)?.includes(holder)),
        );
      const full = holders.map(ownOf).filter((own) => own.length >= maxFutureSlots);
      const nextOwn = Math.max(...full.map(([next]) => next?.at ?? 0));
      const waitMs = time - now();
      const state =
        waitMs > maxWaitMs ? 'refused' : waitMs > 0 && full.length > 0 ? 'share_taken' : 'granted';
      const ticket = String(holdersOf.size + 1);
      holdersOf.set(ticket, holders);
      if (state === 'granted') endpoint.slots.push({ at: time, ticket });
      const last = Math.max(now() - windowMs, ...endpoint.slots.map((slot) => slot.at));
      return {
        ...{ state, ticket, waitMs: state === 'share_taken' ? nextOwn - now() : waitMs },
        remaining: Math.max(0, limit - endpoint.slots.length),
        resetMs: last + windowMs - now(),
      };
    },
    async start(name, ticket) {
      const { endpoint, limit } = at(name);
      const own = endpoint.slots.find((slot) => slot.ticket === ticket);
      const rest = others(endpoint.slots, ticket);
      const from = Math.max(now(), endpoint.pausedUntil, own?.at ?? 0);
      const started = rest.filter((slot) => slot.at <= now());
      const time = first(from, started, fitsBehind(started, limit));
      endpoint.slots = [...rest, { at: time, ticket }];
      return time - now();
    },
    async sent(name, ticket) {
      const { endpoint } = at(name);
      endpoint.slots = [...others(endpoint.slots, ticket), { at: now(), ticket }];
    },
    async cancel(name, ticket) {
      const { endpoint } = at(name);
      endpoint.slots = others(endpoint.slots, ticket);
    },
    async pause(name, pauseMs, firstTicket) {
      const { endpoint, limit } = at(name);
      endpoint.pausedUntil = Math.max(endpoint.pausedUntil, now() + pauseMs);
      const rest = inOrder(others(endpoint.slots, firstTicket));
      const placed = rest.filter((slot) => slot.at <= now());
      const refused = firstTicket === undefined ? [] : [{ at: now(), ticket: firstTicket }];
      for (const slot of [...refused, ...rest.filter((one) => one.at > now())]) {
        const time = first(Math.max(endpoint.pausedUntil, slot.at), placed, fitsBehind(placed, limit));
        placed.push({ ...slot, at: time });
      }
      endpoint.slots = placed;
    },
  };
}
