import type { RunTimes } from './run-store.ts';

/** Times of what is stored, in ms. */
export interface RunLeases {
  /** How long an instance has the right to a run after its last sign of life, and how often it gives one. */
  readonly leaseMs: number;
  readonly renewMs: number;
  /** How often what comes is stored while it is read elsewhere, at most. */
  readonly batchMs: number;
  /** How often one who follows a run looks at it without news, and how long that counts. */
  readonly lookMs: number;
  readonly followedMs: number;
  /** How long after a failure of Redis nobody counts as lost: all others have that time to renew their leases. */
  readonly calmMs: number;
  /** How long those who read wait for Redis. */
  readonly failingMs: number;
  /** How long the end of a run is tried to be stored. */
  readonly endingMs: number;
}

export const RUN_LEASES: RunLeases = {
  ...{ leaseMs: 5_000, renewMs: 1_000, batchMs: 50, lookMs: 1_000, followedMs: 3_000 },
  ...{ calmMs: 4_000, failingMs: 20_000, endingMs: 60_000 },
};

/** How long a name is known whose run goes on, in ms: until it ends, or is remembered after its instance was lost. */
export function knownMs({ maxWaitMs, maxExecutionMs, rememberMs }: RunTimes, isRemembered: boolean): number {
  return Math.max(maxWaitMs + maxExecutionMs, isRemembered ? rememberMs : 0);
}
