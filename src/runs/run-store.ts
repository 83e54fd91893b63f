import type { CarriedRun, Run } from './run.ts';
import type { MessageName, RunName } from './run-name.ts';

/** The id of a run, and that of the request that has begun it. */
export type RunIds = Pick<Run, 'id' | 'requestId'>;

/** What a store knows of a name. */
export type KnownRun =
  /** Nobody has it: `find` only. */
  | { readonly state: 'free' }
  /** It is that of the run that has claimed it. */
  | { readonly state: 'claimed' }
  /** Its run goes on, or its instance is lost; or its answer is kept. */
  | ({ readonly state: 'live' | 'kept' } & RunIds)
  /** Its run is over, and nothing of its answer is kept. */
  | { readonly state: 'over' };

/** The newest run of a message id. */
export type NewestRun =
  | ({ readonly state: 'live' | 'kept'; readonly key: string } & RunIds)
  | { readonly state: 'over' };

/** A run that is about to be sent. */
export interface Confirmation {
  readonly id: string;
  /** Undefined if nobody can join it. */
  readonly name: RunName | undefined;
  /** Whose stop drops it; undefined if no stop does. */
  readonly conversation: string | undefined;
  /** Since when it waits, by `performance.now()` in ms. */
  readonly waitsSince: number;
}

/** Whether a run may be sent now; `other` is the run that has its name. */
export type Confirmed = 'confirmed' | 'stopped' | { readonly other: RunIds };

/** A name is claimed, the log is stored, and stops are known: by this process alone, or in Redis by all instances. */
export interface RunStore {
  /** Whether other instances can read what this one carries. */
  readonly isShared: boolean;
  /** Claims the name for a run, unless another has it. @throws Problem `session_store_unavailable`, as all below */
  claim(name: RunName, run: RunIds): Promise<KnownRun>;
  find(name: RunName): Promise<KnownRun>;
  newest(message: MessageName): Promise<NewestRun>;
  /** The last thing before a message leaves. A name that was lost is claimed again. */
  confirm(run: Confirmation): Promise<Confirmed>;
  /** Renews the claim of a run that was just claimed, and stores what comes of it, until its end. */
  carry(run: Run): CarriedRun;
  /**
   * Writes into `run` what is stored of the run `run.id` with its name, until its end or until `run` has ended. Resolves
   * when all is there that was stored when it was called.
   */
  follow(run: Run): Promise<void>;
  /**
   * Stops the messages of a conversation that wait, at all instances. Resolves with how many named ones wait, at
   * least.
   */
  stop(conversation: string): Promise<number>;
  /** Forgets the names of ended runs of a conversation. A live run keeps its name. */
  forget(conversation: string): Promise<void>;
  /** Calls `stopped` with the conversation of each `stop` of another instance; some can be lost. Call it once. */
  listen(stopped: (conversation: string) => void): void;
  /** Stores what is left. */
  close(): Promise<void>;
}

/** How long things are known, in ms. */
export interface RunTimes {
  /** How long the answer of a run is kept after its end. */
  readonly keepMs: number;
  /** How long the name of a run is remembered that may have run. */
  readonly rememberMs: number;
  /** How long a message can wait before it is sent. */
  readonly maxWaitMs: number;
  /** How long a message may run. */
  readonly maxExecutionMs: number;
}

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
