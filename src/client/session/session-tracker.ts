/** A session's user, and its two limits in ISO 8601. */
export interface Session {
  /** Who is signed in. */
  readonly user: {
    /** Stays the same; a guest has another one in each session. */
    readonly id: string;
    /** To show. */
    readonly name: string;
  };
  /** When it ends if nothing is asked until then. */
  readonly idleExpiresAt: string;
  /** When it ends in every case. */
  readonly absoluteExpiresAt: string;
}

/** Follows by the answers of the relay whether somebody is signed in, and numbers the sessions. */
export interface SessionTracker {
  /** The number of the current session. The answer to a call that began in an older one says nothing about this one. */
  readonly current: () => number;
  /** Aborted at the end of the current session. */
  readonly ended: () => AbortSignal;
  /** The id of the user who is signed in; null if it is not known. */
  readonly user: () => string | null;
  /**
   * Takes what a call has found. `found` is the session, or undefined if there is none. For a message it is whether the
   * relay accepted the session, and null for a sign-out. `askedIn` is the session's number when the call began; it is
   * left out for a sign-in.
   */
  readonly learn: (found: Found, askedIn?: number) => void;
  /** Calls it with all that `learn` takes, and whether that was a sign-in. */
  readonly watch: (watcher: Watcher) => void;
}

export type Found = Session | boolean | null | undefined;
export type Watcher = (found: Found, isSignIn: boolean) => void;

/** Calls `onEnd` once when a session has ended. */
export function sessionTracker(onEnd: () => void): SessionTracker {
  let signedIn: boolean | undefined;
  /** The absolute limit of the session. It never changes during a session, so it tells sessions apart. */
  let limit: string | undefined;
  let user: string | null = null;
  let number = 0;
  let session = new AbortController();
  let tell: Watcher = () => {};
  return {
    watch(watcher) {
      tell = watcher;
    },
    current: () => number,
    ended: () => session.signal,
    user: () => user,
    learn(found, askedIn) {
      // A sign-out also ends the streams of its session, which may have told so first.
      const isKnown = found === null && signedIn === false;
      if (number !== (askedIn ?? number) && !isKnown) return;
      // A page that sends a message or signs out expects a session, even if nothing is known yet.
      const wasSignedIn = signedIn ?? (found === false || found === null);
      signedIn = !!found;
      const before = limit;
      limit = (found as Session | null | undefined)?.absoluteExpiresAt ?? before;
      if (found !== true) user = found ? found.user.id : null;
      // Another limit means that somebody has signed in elsewhere, such as in another tab.
      if (!found || askedIn === undefined || (before ?? limit) !== limit) {
        number++;
        session.abort();
        session = new AbortController();
      }
      if (!found && wasSignedIn) onEnd();
      tell(found, askedIn === undefined);
    },
  };
}
