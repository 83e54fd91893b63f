/** Who owns a conversation. */
export interface ChannelOwnership {
  readonly owner: string;
  /** Whether the owner has it at one of the places that were asked for. */
  readonly isPlaced: boolean;
}

/** A user who takes a conversation at a place. */
export interface ChannelClaim {
  readonly owner: string;
  readonly place: string;
}

/**
 * The owners of conversations. Only an operator takes one away. A conversation has one owner, who may have it at several
 * places. All names are hashes. Each method rejects with Problem `session_store_unavailable` if the store is out of reach.
 */
export interface ChannelOwners {
  /** The owner of `channel`; undefined if it has none. */
  find(channel: string, places: readonly string[]): Promise<ChannelOwnership | undefined>;
  /** Makes the claim if `channel` has no other owner. Returns the owner that it has then. */
  claim(channel: string, claim: ChannelClaim): Promise<string>;
  /** Takes `channel` away from its owner, at all places. Returns false if it has none. */
  release(channel: string): Promise<boolean>;
}
