import type { CarriedRun, Run } from './run.ts';
import type { MessageName, RunName } from './run-name.ts';

/** The id of a run, and that of the request that has begun it. */
export type RunIds = Pick<Run, 'id' | 'requestId'>;

/** What a store knows of a name. */
export type KnownRun =
  /** No run has it: only `find` returns this. */
  | { readonly state: 'free' }
  /** The run that asked has it now: only `claim` returns this. */
  | { readonly state: 'claimed' }
  /** `live`: its run goes on, or the instance of that is lost. `kept`: its run has ended, and the answer is kept. */
  | ({ readonly state: 'live' | 'kept' } & RunIds)
  /** Its run has ended, and the answer is not kept. */
  | { readonly state: 'over' };

/** The newest run of a message id. */
export type NewestRun =
  | ({ readonly state: 'live' | 'kept'; readonly key: string } & RunIds)
  | { readonly state: 'over' };

/** A run that is about to be sent. */
export interface Confirmation {
  readonly id: string;
  /** Undefined if no other request can join it. */
  readonly name: RunName | undefined;
  /** The key of the conversation whose stop drops it; undefined if no stop does. */
  readonly conversation: string | undefined;
  /** Since when it waits, by `performance.now()` in ms. */
  readonly waitsSince: number;
}

/** Whether a run may be sent now; `other` is the run that has its name. */
export type Confirmed = 'confirmed' | 'stopped' | { readonly other: RunIds };

/** Names of runs, their logs, and stops: of this process alone, or of all instances, in Redis. */
export interface RunStore {
  /** Whether other instances can read what this one carries. */
  readonly isShared: boolean;
  /** Claims the name for a run, unless another has it. @throws Problem `session_store_unavailable`, as all below */
  claim(name: RunName, run: RunIds): Promise<KnownRun>;
  find(name: RunName): Promise<KnownRun>;
  newest(message: MessageName): Promise<NewestRun>;
  /** The last step before a message is sent. A name that Redis has lost is claimed again. */
  confirm(run: Confirmation): Promise<Confirmed>;
  /** Renews the claim of a run that has just claimed its name, and stores its stream, until its end. */
  carry(run: Run): CarriedRun;
  /**
   * Follows the run `run.id` of another instance: writes into `run` what is stored of it, until either has ended.
   * Resolves when `run` has all that was stored at the time of the call.
   */
  follow(run: Run): Promise<void>;
  /**
   * Stops the messages of a conversation that wait, at all instances. Resolves with at least how many of those with a
   * name wait.
   */
  stop(conversation: string): Promise<number>;
  /** Forgets the names of ended runs of a conversation. A live run keeps its name. */
  forget(conversation: string): Promise<void>;
  /** Calls `stopped` with the conversation of each `stop` of another instance; a call can be lost. Call it once. */
  listen(stopped: (conversation: string) => void): void;
  /** Stores what is not stored yet. */
  close(): Promise<void>;
}

/** How long names and answers are known, in ms. */
export interface RunTimes {
  /** How long the answer of a run is kept after its end. */
  readonly keepMs: number;
  /** How long the name of a message is remembered that may have run. */
  readonly rememberMs: number;
  /** How long a message can wait before it is sent. */
  readonly maxWaitMs: number;
  /** How long a message may run. */
  readonly maxExecutionMs: number;
}

/** Times of runs in Redis, in ms. */
export interface RunLeases {
  /** How long an instance keeps its run after it has last renewed it, and how often it does. */
  readonly leaseMs: number;
  readonly renewMs: number;
  /** The least time between two batches of a run that is followed. */
  readonly batchMs: number;
  /** How often a follower reads without news, and how long the run counts as followed after each time. */
  readonly pollMs: number;
  readonly followedMs: number;
  /** How long after a failure of Redis no instance counts as lost: each has that time to renew its leases. */
  readonly calmMs: number;
  /** How long a follower tries again while Redis fails. */
  readonly failingMs: number;
  /** How long a run that has ended tries to store its end. */
  readonly endingMs: number;
}

export const RUN_LEASES: RunLeases = {
  ...{ leaseMs: 5_000, renewMs: 1_000, batchMs: 50, pollMs: 1_000, followedMs: 3_000 },
  ...{ calmMs: 4_000, failingMs: 20_000, endingMs: 60_000 },
};

/**
 * How long the name of a run is known after its last renewal, in ms; `isRemembered`: at least as long as after its end.
 */
export function knownMs({ maxWaitMs, maxExecutionMs, rememberMs }: RunTimes, isRemembered: boolean): number {
  return Math.max(maxWaitMs + maxExecutionMs, isRemembered ? rememberMs : 0);
}
