import {
  type EndpointBudgets,
  limitFor,
  type Rate,
  type Reservation,
  TRIAL_LOOK_MS,
  TRIAL_MS,
  WAITING_SHARE,
} from './budgets.ts';

/** A start that was or will be, in whole µs: sums of such numbers are exact. */
interface Slot {
  readonly at: number;
  readonly ticket: string;
}

interface Endpoint {
  /** Those of the last window and those that lie ahead, in order of time. */
  readonly slots: Slot[];
  pausedUntil: number;
  /** Until then the service has asked for a pause, and what goes, goes on trial. */
  askedUntil: number;
  /** The ticket of the message on trial, and until when it may take to be judged. */
  trial?: { readonly ticket: string; readonly until: number } | undefined;
}

/** So many endpoints are remembered before the idle ones among them are looked for. */
const SWEEP_FROM = 1000;
const US_PER_MS = 1000;
const LOOK = TRIAL_LOOK_MS * US_PER_MS;

/**
 * Exact sliding windows in this process's memory, for one instance. `now` is a monotonic clock in ms.
 * `redis-budgets.ts` does the same in Lua; both pass the same tests.
 */
export function memoryBudgets(rate: Rate, now = () => performance.now()): EndpointBudgets {
  const window = rate.windowMs * US_PER_MS;
  const endpoints = new Map<string, Endpoint>();
  let nextSweepAt = 0;
  let tickets = 0;

  /** The endpoint without what lies more than a window back, and the time. */
  function current(name: string): [Endpoint, number] {
    const at = Math.round(now() * US_PER_MS);
    const endpoint = endpoints.get(name) ?? { slots: [], pausedUntil: 0, askedUntil: 0 };
    const { slots } = endpoint;
    // In order of time: each slot is looked at here once more than it is kept, however many the window holds.
    let gone = 0;
    while (gone < slots.length && (slots[gone] as Slot).at + window <= at) gone++;
    // The usual case is one, which `shift` takes off sooner; of a long list it moves the rest each time, which took
    // seconds for a whole window that had run out.
    if (gone === 1) slots.shift();
    else if (gone > 1) slots.splice(0, gone);
    return [endpoint, at];
  }

  function keep(name: string, endpoint: Endpoint, at: number): void {
    if (endpoints.size >= SWEEP_FROM && at >= nextSweepAt) {
      nextSweepAt = at + window;
      for (const [other, { slots, askedUntil }] of endpoints) {
        if (Math.max((slots.at(-1)?.at ?? 0) + window, askedUntil) <= at) endpoints.delete(other);
      }
    }
    endpoints.set(name, endpoint);
  }

  /** How long until the trial of another message than that of `ticket` is over, in µs; 0 if there is none. */
  function otherTrial({ trial }: Endpoint, ticket: string, at: number): number {
    return trial && !ticket.startsWith(trial.ticket) ? Math.max(0, trial.until - at) : 0;
  }

  /** The answer for a message whose slot is at `slotAt`; it goes on trial if it goes now and must. */
  function startAt(endpoint: Endpoint, ticket: string, { slotAt, at }: { slotAt: number; at: number }) {
    const onTrial = slotAt <= at && endpoint.askedUntil > at;
    if (onTrial) {
      const until = Math.min(at + (rate.trialMs ?? TRIAL_MS) * US_PER_MS, endpoint.askedUntil);
      endpoint.trial = { ticket, until };
    }
    const judgedMs = otherTrial(endpoint, ticket, at) / US_PER_MS;
    return { waitMs: (slotAt - at) / US_PER_MS, judgedMs, onTrial };
  }

  /** The first time from `from` on for one more behind all of the endpoint's `slots`, the last of which asked for no later time. */
  function behind(name: string, slots: readonly Slot[], from: number): number {
    const limit = limitFor(rate, name);
    return Math.max(from, (slots.at(-limit)?.at ?? -window) + window);
  }

  return {
    async reserve({ endpoint: name, holders, maxWaitMs }) {
      const limit = limitFor(rate, name);
      const [endpoint, at] = current(name);
      const { slots } = endpoint;
      const judged = otherTrial(endpoint, '', at);
      const earliest = Math.max(at, endpoint.pausedUntil, judged > 0 ? at + LOOK : 0);
      const slotAt = firstSlot(slots, earliest, { limit, window });
      const ahead = slots.slice(countUpTo(slots, at));
      const answer = (state: Reservation['state'], until: number, ticket = '') => ({
        state,
        waitMs: (until - at) / US_PER_MS,
        judgedMs: judged / US_PER_MS,
        onTrial: false,
        ticket,
        remaining: Math.max(0, limit - slots.length),
        resetMs: Math.max(0, (slots.at(-1)?.at ?? at - window) + window - at) / US_PER_MS,
      });
      if (slotAt - at > maxWaitMs * US_PER_MS) return answer('refused', slotAt);
      const full = holders
        .map((holder) => ahead.filter(({ ticket }) => isOf(holder, ticket)))
        .filter((own) => own.length >= WAITING_SHARE);
      if (slotAt > at && full.length > 0) {
        return answer('share_taken', Math.max(...full.map(([next]) => (next as Slot).at)));
      }
      const ticket = `${++tickets} ${holders.join(' ')} `;
      insert(slots, { at: slotAt, ticket });
      keep(name, endpoint, at);
      return { ...answer('granted', slotAt, ticket), ...startAt(endpoint, ticket, { slotAt, at }) };
    },

    async start(name, ticket) {
      const [endpoint, at] = current(name);
      const slots = endpoint.slots.filter((slot) => slot.ticket !== ticket);
      const own = endpoint.slots.find((slot) => slot.ticket === ticket);
      // What lies ahead gives way to a slot that has come: it is asked again before it starts.
      const started = slots.filter((slot) => slot.at <= at);
      const look = otherTrial(endpoint, ticket, at) > 0 ? at + LOOK : 0;
      const slotAt = behind(name, started, Math.max(at, endpoint.pausedUntil, own?.at ?? 0, look));
      insert(slots, { at: slotAt, ticket });
      const kept = { ...endpoint, slots };
      keep(name, kept, at);
      return startAt(kept, ticket, { slotAt, at });
    },

    async judged(name, ticket, accepted) {
      const [endpoint, at] = current(name);
      if (!endpoint.trial || !ticket.startsWith(endpoint.trial.ticket)) return;
      endpoint.trial = undefined;
      // What was sent before a later refusal says nothing of what comes after that.
      if (accepted && endpoint.pausedUntil <= at) endpoint.askedUntil = 0;
    },

    async sent(name, ticket) {
      const [endpoint, at] = current(name);
      const slots = endpoint.slots.filter((slot) => slot.ticket !== ticket);
      insert(slots, { at, ticket });
      keep(name, { ...endpoint, slots }, at);
    },

    async cancel(name, ticket) {
      const [endpoint] = current(name);
      const place = endpoint.slots.findLastIndex((slot) => slot.ticket === ticket);
      if (place >= 0) endpoint.slots.splice(place, 1);
      if (endpoint.trial && ticket.startsWith(endpoint.trial.ticket)) endpoint.trial = undefined;
    },

    async penalize(name, ticket, { believedMs, askedMs }) {
      const [endpoint, at] = current(name);
      const { trial } = endpoint;
      const pausedUntil = Math.max(endpoint.pausedUntil, at + believedMs * US_PER_MS);
      const askedUntil = Math.max(endpoint.askedUntil, at + askedMs * US_PER_MS);
      const others = endpoint.slots.filter((slot) => slot.ticket !== ticket);
      const slots = others.filter((slot) => slot.at <= at);
      const moved = [{ at, ticket }, ...others.filter((slot) => slot.at > at)];
      for (const slot of moved) {
        slots.push({ ...slot, at: behind(name, slots, Math.max(pausedUntil, slot.at)) });
      }
      const judged = trial && ticket.startsWith(trial.ticket);
      keep(name, { slots, pausedUntil, askedUntil, trial: judged ? undefined : trial }, at);
    },
  };
}

/** A ticket is a number that grows from one to the next, and its holders, with a space behind each. */
const isOf = (holder: string, ticket: string) => ticket.includes(` ${holder} `);
const orderOf = (ticket: string) => Number.parseInt(ticket, 10);

/** Keeps the slots in order of time, and those of the same time in the order in which they were asked for. */
function insert(slots: Slot[], slot: Slot): void {
  const isBefore = (other: Slot) =>
    other.at < slot.at || (other.at === slot.at && orderOf(other.ticket) < orderOf(slot.ticket));
  // Nearly always at the end.
  slots.splice(slots.findLastIndex(isBefore) + 1, 0, slot);
}

/** How many slots lie at the time `at` or before. Looks from the end: few lie ahead, and many may lie in the window. */
function countUpTo(slots: readonly Slot[], at: number): number {
  return slots.findLastIndex((slot) => slot.at <= at) + 1;
}

/** The first time from `from` on at which one more start leaves every window with at most `limit`. */
function firstSlot(
  slots: readonly Slot[],
  from: number,
  { limit, window }: { limit: number; window: number },
): number {
  // How many slots lie at the time that was asked for last, or before.
  let place = countUpTo(slots, from);
  // With one more at `at`, any `limit + 1` in a row must span a window. To be asked in order of time.
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
