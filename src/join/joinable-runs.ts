import type { Progress, Run } from './run.ts';
import type { MessageName, RunName } from './run-name.ts';
import type { FoundRun, RunsOptions } from './runs.ts';

/** A message that joins its run, or begins it. */
export interface RunEntry<T> {
  readonly lastEventId: string | undefined;
  readonly requestId: string;
  readonly progress: Progress;
  /** Aborted when the client has left. */
  readonly signal?: AbortSignal | undefined;
  /** Called when Redis is asked for the name, in the same tick: what is asked besides comes in the same flight. */
  readonly onAsked?: (() => void) | undefined;
  /** What it rejects with refuses the client: nobody joins a run before. */
  readonly granted?: Promise<void> | undefined;
  /** Takes a seat at a run that goes on or is kept. */
  join(found: FoundRun): T;
  /** Begins the run of a message that nobody has sent, with a seat at it. Only then it may be sent. */
  begin(run: Run): T;
}

/** A request that only joins. */
export type JoinEntry<T> = Pick<RunEntry<T>, 'lastEventId' | 'signal' | 'join'>;

/** Runs by their names, of this instance or of all. Every method rejects with Problem `session_store_unavailable`. */
export interface JoinableRuns {
  /**
   * Resolves with what `join` or `begin` returns, of which one is called; with `lastEventId`, with undefined if the
   * run or that event is not known here, so that the service must be asked.
   * @throws Problem `run_over`, `run_not_kept`; neither with `lastEventId`; `RUN_DROPPED`, after which the name is free
   *   in a moment. A run that was joined may end with that, too.
   */
  enter<T>(name: RunName, entry: RunEntry<T>): Promise<T | undefined>;
  /** Joins the newest run of a message id. @throws Problem `run_over`, `run_not_kept` */
  newest<T>(name: MessageName, entry: JoinEntry<T>): Promise<T>;
  /** Forgets the names of a conversation; runs go on for those who read them. */
  forget(conversation: string, except?: RunName): Promise<void>;
  /** Lets this instance go on with runs of others whose instance is lost. */
  whenTaken(goOn: GoOn): void;
}

/** From where the stream of a run goes on. */
export interface TakenRun {
  readonly run: Run;
  /** What was kept of its message by `run.keep`. */
  readonly hold: unknown;
  /** How far the stream has come, by the `resumeState` of its source. */
  readonly cursor: unknown;
  /** How long ago its message was stored, in ms. */
  readonly sinceMs: number;
}

/** Resumes the stream of a run at the service; sees it to its end. */
export type GoOn = (taken: TakenRun) => void;

/** What became of a run at another instance, or of one that another instance took. */
export type MoveOutcome = 'taken_over' | 'handed_over' | 'ended' | 'lost';

export interface JoinableOptions extends RunsOptions {
  /** How long a message may take, in ms. */
  readonly maxExecutionMs: number;
  /** How many bytes all logs of all instances have together, sealed; by default 256 MiB. */
  readonly maxStoredBytes?: number;
  readonly onMoved: (run: { readonly requestId: string }, outcome: MoveOutcome) => void;
  /** Called with what was thrown by mistake while a run of another instance was read. */
  readonly onFault?: (run: { readonly requestId: string }, error: unknown) => void;
}

/** Opens runs, in this process or in Redis. */
export interface RunStore {
  /** Call it once at most. */
  open(options: JoinableOptions): JoinableRuns;
  /**
   * How many bytes the streams of all instances take in Redis; 0 without Redis, or before `open`. It asks Redis each time.
   * @throws Problem `session_store_unavailable`
   */
  storedBytes(): Promise<number>;
  /** Whether clients of other instances can read what this one carries. */
  readonly areShared: boolean;
  /** Whether clients of other instances read a run that this one carries, or may come back to it. */
  mayBeReadElsewhere(): boolean;
  /** A shutdown ends all streams now: other instances may go on with what they can. */
  handOver(): Promise<void>;
  /** Writes what is left. */
  close(): Promise<void>;
}
