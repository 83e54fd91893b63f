/** Remembers which files a user was given in a conversation, for a day after the last of them. */
export interface GivenBlobs {
  /** `place` names the user and the conversation. The oldest ids are forgotten if there are too many. */
  remember(place: string, ids: readonly string[]): Promise<void>;
  /** Whether all of `ids` were given there. */
  areGiven(place: string, ids: readonly string[]): Promise<boolean>;
}

/** How long after the last file of a conversation its ids are kept, in ms. */
export const KEPT_MS = 24 * 60 * 60 * 1000;
/** How many ids of one conversation are kept. */
export const MAX_KEPT = 256;
