/** A past or future start. `at` is in whole µs, so that sums are exact. */
export interface Slot {
  readonly at: number;
  readonly ticket: string;
}

/** At most `limit` starts in any interval of `window`, in µs. */
export interface SlotLimit {
  readonly limit: number;
  readonly window: number;
}

/** A ticket is a growing number and the holders, with a space after each. */
export const ticketOf = (order: number, holders: readonly string[]) => `${order} ${holders.join(' ')} `;
export const isHeldBy = (holder: string, ticket: string) => ticket.includes(` ${holder} `);
const orderOf = (ticket: string) => Number.parseInt(ticket, 10);

/** Inserts `slot` in order of time; slots of the same time are in the order of their tickets. */
export function insert(slots: Slot[], slot: Slot): void {
  const isBefore = (other: Slot) =>
    other.at < slot.at || (other.at === slot.at && orderOf(other.ticket) < orderOf(slot.ticket));
  // Search from the end, where the place nearly always is.
  slots.splice(slots.findLastIndex(isBefore) + 1, 0, slot);
}

/** Removes the slots that are a `window` old or older at the time `at`, both in µs. */
export function dropPassed(slots: Slot[], at: number, window: number): void {
  // The slots are in order of time: the loop stops at the first one that stays.
  let passed = 0;
  while (passed < slots.length && (slots[passed] as Slot).at + window <= at) passed++;
  // `shift` is faster for one slot, the usual case. For many, `splice` moves the rest of the list only once.
  if (passed === 1) slots.shift();
  else if (passed > 1) slots.splice(0, passed);
}

/** The slots of all other tickets, as a new list. */
export function withoutTicket(slots: readonly Slot[], ticket: string): Slot[] {
  return slots.filter((slot) => slot.ticket !== ticket);
}

/** How many slots are at the time `at` or before. Searches from the end, since few slots are in the future. */
export function countUpTo(slots: readonly Slot[], at: number): number {
  return slots.findLastIndex((slot) => slot.at <= at) + 1;
}

/** The first time from `from` on for one more slot after all of `slots`. */
export function slotBehindAll(slots: readonly Slot[], from: number, { limit, window }: SlotLimit): number {
  return Math.max(from, (slots.at(-limit)?.at ?? -window) + window);
}

/** The first time from `from` on at which one more start leaves every window with at most `limit`. */
export function firstSlot(slots: readonly Slot[], from: number, { limit, window }: SlotLimit): number {
  // How many slots are at the time of the last call of `fits`, or before.
  let place = countUpTo(slots, from);
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
