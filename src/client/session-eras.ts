/** Whose session it is and how long it lasts (ISO 8601). */
export interface Session {
  readonly user: { readonly id: string; readonly name: string };
  readonly idleExpiresAt: string;
  readonly absoluteExpiresAt: string;
}

/** Whether somebody is signed in, as far as the answers of the relay tell. */
export interface SessionEras {
  /** The era in which something is asked for: its answer says nothing about the sessions after that. */
  readonly now: () => number;
  /**
   * Takes in what was found by what was asked for in the era `asked`, or by signing in if that is left out: the
   * session, or undefined for none; or true if a message was taken, and false if it was not, whose sender counts as
   * signed in until then.
   */
  readonly learn: (found: Session | boolean | undefined, asked?: number) => void;
}

/** Calls `onEnd` once when a session turns out to be over. */
export function sessionEras(onEnd: () => void): SessionEras {
  let signedIn: boolean | undefined;
  /** When the session ends, which does not move while it lasts: sessions are told apart by it. */
  let known: string | undefined;
  let era = 0;
  return {
    now: () => era,
    learn(found, asked) {
      if (era !== (asked ?? era)) return;
      const wasSignedIn = signedIn ?? found === false;
      signedIn = !!found;
      const before = known;
      known = (found as Session | undefined)?.absoluteExpiresAt ?? before;
      // With another session somebody has signed in elsewhere, as in another tab.
      if (!found || asked === undefined || (before ?? known) !== known) era++;
      if (!found && wasSignedIn) onEnd();
    },
  };
}
