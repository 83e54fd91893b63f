import { Problem } from '../errors.ts';

/** Bounds how many runs a user reads at this instance that other requests have begun. */
export interface UserReaders {
  /** Takes a reader, and ends the user's oldest one if there are too many. Returns what gives it back. */
  add(userId: string, stop: AbortController): () => void;
}

/** As many as four runs can have: more than all pages of one person need. */
export const MAX_READERS_PER_USER = 256;
/** Ends a reader that may be the last of its run; that goes on as if its client had left. */
export const TOO_MANY_OF_USER = new Problem(
  'too_many_streams',
  `This user has ${MAX_READERS_PER_USER} newer readers of answers.`,
  { retryable: false },
);

/** Makes the bound of this instance. */
export function userReaders(): UserReaders {
  const users = new Map<string, Set<AbortController>>();
  return {
    add(userId, stop) {
      const readers = users.get(userId) ?? new Set();
      users.set(userId, readers.add(stop));
      const [oldest] = readers;
      const release = (one: AbortController) => {
        readers.delete(one);
        if (readers.size === 0 && users.get(userId) === readers) users.delete(userId);
      };
      if (oldest && readers.size > MAX_READERS_PER_USER) {
        release(oldest);
        oldest.abort(TOO_MANY_OF_USER);
      }
      return () => release(stop);
    },
  };
}
