/** The failures of one key in the window that is under way. */
export interface Failures {
  readonly count: number;
  /** In how many ms that window is over; 0 if there is none. */
  readonly resetMs: number;
}

/** One attempt that is under way. */
export interface Attempt {
  /** Counts it as failed. @throws Problem `session_store_unavailable` if that cannot be kept */
  failed(): Promise<void>;
  /** Gives its place back if it has not failed; to be called for every attempt. */
  end(): void;
}

/** What became of the wish to begin an attempt; `wait` if only others that are under way keep it out. */
export type Begun =
  | { readonly state: 'begun'; readonly attempt: Attempt }
  | { readonly state: 'wait' }
  | { readonly state: 'refused'; readonly resetMs: number };

/**
 * Attempts of keys, of which so many may fail in a window that begins with the first failure. Those that have failed
 * and those that are under way are never more than that together, over all instances.
 */
export interface Attempts {
  /** @throws Problem `session_store_unavailable` if nobody can tell */
  failures(key: string): Promise<Failures>;
  /** @throws Problem `session_store_unavailable` if nobody can tell */
  begin(key: string): Promise<Begun>;
}

export interface AttemptsOptions {
  /** No two share any counts. */
  readonly name: string;
  readonly maxFailures: number;
  readonly windowMs: number;
}

/** Where attempts are counted. */
export type AttemptCounts = (options: AttemptsOptions) => Attempts;
