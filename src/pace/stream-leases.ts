/** A place among the open streams of a holder. */
export interface StreamLease {
  /** Gives the place back. Never fails, and may be called again. */
  release(): void;
}

/** Counts the open streams of each holder, in this process's memory, or in Redis for all instances. */
export interface StreamLeases {
  /**
   * Takes a place for one more stream of the holder; undefined if it already holds `max`.
   * @throws Problem `session_store_unavailable` if the streams cannot be counted
   */
  acquire(holder: string, max: number): Promise<StreamLease | undefined>;
  /** Resolves when Redis has heard of all places that were given back. Acquire nothing after this call. */
  close(): Promise<void>;
}
