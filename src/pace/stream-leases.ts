/** A place among the open streams of a holder. */
export interface StreamLease {
  /** Gives the place back. Never fails, and may be called again. */
  release(): void;
}

/** Who holds how many open streams; one contract, kept in this process's memory or in Redis for all instances. */
export interface StreamLeases {
  /**
   * A place for one more stream of the holder, or nothing if it holds `max` already.
   * @throws Problem `session_store_unavailable` if nobody can tell
   */
  acquire(holder: string, max: number): Promise<StreamLease | undefined>;
  /** Resolves when the places that were given back are free for everybody. Nothing is acquired from then on. */
  close(): Promise<void>;
}
