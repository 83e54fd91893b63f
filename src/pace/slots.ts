/** A start that was or will be, in whole µs: sums of such numbers are exact. */
export interface Slot {
  readonly at: number;
  readonly ticket: string;
}

/** So many starts are allowed in any stretch of `window`, in µs. */
export interface SlotLimit {
  readonly limit: number;
  readonly window: number;
}

/** A ticket is a number that grows from one to the next, and its holders, with a space behind each. */
export const ticketOf = (order: number, holders: readonly string[]) => `${order} ${holders.join(' ')} `;
export const isOf = (holder: string, ticket: string) => ticket.includes(` ${holder} `);
const orderOf = (ticket: string) => Number.parseInt(ticket, 10);

/** Keeps the slots in order of time, and those of the same time in the order in which they were asked for. */
export function insert(slots: Slot[], slot: Slot): void {
  const isBefore = (other: Slot) =>
    other.at < slot.at || (other.at === slot.at && orderOf(other.ticket) < orderOf(slot.ticket));
  // Nearly always at the end.
  slots.splice(slots.findLastIndex(isBefore) + 1, 0, slot);
}

/** Takes off the slots that lie a `window` back or more at the time `at`, both in µs. */
export function dropPassed(slots: Slot[], at: number, window: number): void {
  // In order of time: each slot is looked at here once more than it is kept, however many the window holds.
  let gone = 0;
  while (gone < slots.length && (slots[gone] as Slot).at + window <= at) gone++;
  // The usual case is one, which `shift` takes off sooner; of a long list it moves the rest each time, which took
  // seconds for a whole window that had run out.
  if (gone === 1) slots.shift();
  else if (gone > 1) slots.splice(0, gone);
}

/** The slots of all other tickets, as a new list. */
export function withoutTicket(slots: readonly Slot[], ticket: string): Slot[] {
  return slots.filter((slot) => slot.ticket !== ticket);
}

/** How many slots lie at the time `at` or before. Looks from the end: few lie ahead, and many may lie in the window. */
export function countUpTo(slots: readonly Slot[], at: number): number {
  return slots.findLastIndex((slot) => slot.at <= at) + 1;
}

/** The first time from `from` on for one more behind all `slots`, the last of which asked for no later time. */
export function behindAll(slots: readonly Slot[], from: number, { limit, window }: SlotLimit): number {
  return Math.max(from, (slots.at(-limit)?.at ?? -window) + window);
}

/** The first time from `from` on at which one more start leaves every window with at most `limit`. */
export function firstSlot(slots: readonly Slot[], from: number, { limit, window }: SlotLimit): number {
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
