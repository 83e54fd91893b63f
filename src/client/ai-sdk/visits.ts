import type { FollowedSession } from '../session/followed-session.ts';
import type { SessionTracker } from '../session/session-tracker.ts';

/** The time in which one user sees the chats: it ends with their session. */
export interface Visit {
  /** Aborted at the end of the session, and when another user may see the chats. */
  readonly ended: AbortSignal;
  /** Whether the user has signed out, or another one has signed in. */
  readonly isLeft: () => boolean;
}

/** Returns a function that gives the current visit. `onLeft` is called when its user has left. */
export function visits(
  { tracker, session }: { readonly tracker: SessionTracker; readonly session: FollowedSession },
  onLeft: () => void,
): () => Visit {
  let leave: () => void = () => {};
  function begin(): Visit {
    const abort = new AbortController();
    let left = false;
    leave = () => {
      left = true;
      abort.abort();
    };
    tracker.ended().addEventListener('abort', () => abort.abort(), { once: true });
    return { ended: abort.signal, isLeft: () => left };
  }
  let current = begin();
  session.onDrop(() => {
    leave();
    onLeft();
  });
  return () => {
    if (current.ended.aborted) current = begin();
    return current;
  };
}
