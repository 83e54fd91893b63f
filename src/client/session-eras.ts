/** Whether somebody is signed in, as far as the answers of the relay tell. */
export interface SessionEras {
  /** The era in which something is asked for: its answer says nothing about the sessions after that. */
  readonly now: () => number;
  /** Somebody has signed in. */
  readonly begin: () => void;
  /**
   * Takes in what an answer says to what was asked for in the era `asked`. `ifUnknown`: whether somebody counts as
   * signed in of whom nothing was known yet, as whoever sends a message does.
   */
  readonly learn: (isSignedIn: boolean, asked: number, ifUnknown?: boolean) => void;
}

/** Calls `onEnd` once when a session turns out to be over. */
export function sessionEras(onEnd: () => void): SessionEras {
  let signedIn: boolean | undefined;
  let era = 0;
  return {
    now: () => era,
    begin() {
      signedIn = true;
      era++;
    },
    learn(isSignedIn, asked, ifUnknown = true) {
      if (asked !== era) return;
      const wasSignedIn = signedIn ?? ifUnknown;
      signedIn = isSignedIn;
      if (isSignedIn) return;
      era++;
      if (wasSignedIn) onEnd();
    },
  };
}
