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
  /** Ends every live stream and every left run with `problem`, those too that are added later. */
  endLive(problem: Problem): void;
  /** Ends all with `problem`. */
  endAll(problem: Problem): void;
  /** How many messages are open; nothing else counts. */
  count(): number;
}

/** In a shutdown nobody can come back to these. */
const ENDED_FIRST: ReadonlySet<OpenKind> = new Set(['live', 'left'] as const);

/** Makes the collection, which is empty. */
export function openMessages(): OpenMessages {
  const open = new Map<AbortController, { readonly owner: string; readonly kind: OpenKind }>();
  let messages = 0;
  let endedWith: Problem | undefined;
  return {
    add(stop, owner, kind = 'message') {
      open.set(stop, { owner, kind });
      if (kind === 'message') messages++;
      if (endedWith && ENDED_FIRST.has(kind)) stop.abort(endedWith);
      return () => {
        if (open.delete(stop) && kind === 'message') messages--;
      };
    },
    endSession(sessionKey, problem) {
      for (const [stop, { owner }] of open) if (owner === sessionKey) stop.abort(problem);
    },
    endLive(problem) {
      endedWith = problem;
      for (const [stop, { kind }] of open) if (ENDED_FIRST.has(kind)) stop.abort(problem);
    },
    endAll(problem) {
      for (const stop of open.keys()) stop.abort(problem);
    },
    count: () => messages,
  };
}
