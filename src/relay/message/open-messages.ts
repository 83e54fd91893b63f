import type { Problem } from '../../errors.ts';

/** The messages of this process that have not been answered to their end. */
export interface OpenMessages {
  /** Adds a message of a session, which aborting `stop` ends. Returns what takes it out again. */
  add(stop: AbortController, sessionKey: string): () => void;
  /** Ends the open messages of one session with `problem`. */
  endSession(sessionKey: string, problem: Problem): void;
  /** Ends every open message with `problem`. */
  endAll(problem: Problem): void;
  count(): number;
}

export function openMessages(): OpenMessages {
  const open = new Map<AbortController, string>();
  return {
    add(stop, sessionKey) {
      open.set(stop, sessionKey);
      return () => open.delete(stop);
    },
    endSession(sessionKey, problem) {
      for (const [stop, owner] of open) if (owner === sessionKey) stop.abort(problem);
    },
    endAll(problem) {
      for (const stop of open.keys()) stop.abort(problem);
    },
    count: () => open.size,
  };
}
