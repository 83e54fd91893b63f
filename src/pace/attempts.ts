/** The failed attempts of one key in the current window. */
export interface Failures {
  readonly count: number;
  /** In how many ms the window ends; 0 if there is none. */
  readonly resetMs: number;
}

/** One attempt that is running. */
export interface CountedAttempt {
  /** Counts it as failed. @throws Problem `session_store_unavailable` if it cannot be counted */
  failed(): Promise<void>;
  /** Gives its place back if it has not failed. Call it for every attempt. */
  end(): void;
}

/** Whether an attempt could begin; `wait` if running attempts take the last places of the limit. */
export type BeginResult =
  | { readonly state: 'begun'; readonly attempt: CountedAttempt }
  | { readonly state: 'wait' }
  | { readonly state: 'refused'; readonly resetMs: number };

/**
 * Limits failed attempts by key: at most `maxFailures` in a window, which begins with the first failure. Failed and
 * running attempts together are never more than that, over all instances.
 */
export interface Attempts {
  /** @throws Problem `session_store_unavailable` if the count cannot be read */
  failures(key: string): Promise<Failures>;
  /** @throws Problem `session_store_unavailable` if the count cannot be read */
  begin(key: string): Promise<BeginResult>;
}

/** The name of the attempts to sign in to an account. */
export const ACCOUNT_ATTEMPTS = 'login-account';

export interface AttemptsOptions {
  /** Attempts with different names share no counts. */
  readonly name: string;
  readonly maxFailures: number;
  readonly windowMs: number;
}

/** Where attempts are counted. */
export type AttemptCounts = (options: AttemptsOptions) => Attempts;
