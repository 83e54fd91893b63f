import type { Problem } from '../../errors.ts';

/**
 * What is open: a message, a stream that costs nothing to ask for again, another operation of the bot service, or the
 * run of a message that all its clients have left.
 */
export type OpenKind = 'message' | 'live' | 'operation' | 'left';

/** The messages, live streams and other operations of this process whose answers have not ended. */
export interface OpenMessages {
  /** Adds one of a session; aborting `stop` must end it. Returns the function that removes it. */
  add(stop: AbortController, sessionKey: string, kind?: OpenKind): () => void;
  /** Ends all that is open of one session with `problem`. */
  endSession(sessionKey: string, problem: Problem): void;
  /** Ends all of these kinds with `problem`, also those that are added later. */
  endKinds(kinds: readonly OpenKind[], problem: Problem): void;
  /** Ends all with `problem`. */
  endAll(problem: Problem): void;
  /** How many messages are open; nothing else counts. */
  count(): number;
}

/** Makes the collection, which is empty. */
export function openMessages(): OpenMessages {
  const open = new Map<AbortController, { readonly sessionKey: string; readonly kind: OpenKind }>();
  let messages = 0;
  const endedWith = new Map<OpenKind, Problem>();
  return {
    add(stop, sessionKey, kind = 'message') {
      open.set(stop, { sessionKey, kind });
      if (kind === 'message') messages++;
      if (endedWith.has(kind)) stop.abort(endedWith.get(kind));
      return () => {
        if (open.delete(stop) && kind === 'message') messages--;
      };
    },
    endSession(sessionKey, problem) {
      for (const [stop, one] of open) if (one.sessionKey === sessionKey) stop.abort(problem);
    },
    endKinds(kinds, problem) {
      for (const kind of kinds) endedWith.set(kind, problem);
      for (const [stop, { kind }] of open) if (kinds.includes(kind)) stop.abort(problem);
    },
    endAll(problem) {
      for (const stop of open.keys()) stop.abort(problem);
    },
    count: () => messages,
  };
}
