import { Problem } from '../../errors.ts';

/**
 * Takes room for a form of `bytes` that counts for these holders; returns the function that gives it back.
 * @throws Problem `too_many_streams` if there is none
 */
export type TakeRoom = (bytes: number, holders: readonly string[]) => () => void;

/** One holder, such as a user, gets at most this part of the room. */
const SHARE = 1 / 4;

/** Room of so many bytes for all forms together. The first form always has room, and so has the first one of a holder. */
export function spoolRoom(roomBytes: number): TakeRoom {
  let taken = 0;
  const takenBy = new Map<string, number>();

  function add(bytes: number, holders: readonly string[]): void {
    taken += bytes;
    for (const holder of holders) {
      const now = (takenBy.get(holder) ?? 0) + bytes;
      if (now > 0) takenBy.set(holder, now);
      else takenBy.delete(holder);
    }
  }

  return function takeRoom(bytes, holders) {
    const isFull = (has: number, of: number) => has > 0 && has + bytes > of;
    if (holders.some((holder) => isFull(takenBy.get(holder) ?? 0, roomBytes * SHARE)))
      throw new Problem('too_many_streams', 'Too many of your files are on their way.', { retryAfter: 1 });
    if (isFull(taken, roomBytes))
      throw new Problem('too_many_streams', 'Too many files are on their way.', { retryAfter: 1 });
    add(bytes, holders);
    return () => add(-bytes, holders);
  };
}
