import type { HeldRun } from './held-run.ts';
import type { JoinableOptions } from './joinable-runs.ts';
import type { LeftRunOutcome } from './lone-run.ts';
import type { LostClaims } from './lost-claims.ts';
import type { PublishedRun } from './published-run.ts';
import { type RemoteReaders, SESSION_OVER } from './remote-readers.ts';
import { newRun, type Progress, type Run, type RunOptions } from './run.ts';
import type { RunCalls } from './run-calls.ts';
import type { RunCodec } from './run-codec.ts';
import type { RunFlush } from './run-flush.ts';
import type { Follower, FollowerOptions } from './run-follower.ts';
import { dropLog, type RunLog, runLog } from './run-log.ts';

/** A run that this instance carries, or that its clients read from the log of another. */
export interface LocalRun {
  readonly id: string;
  readonly run: Run;
  /** Set while this instance carries it. */
  held:
    | { readonly held: HeldRun; readonly published: PublishedRun; readonly others: RemoteReaders }
    | undefined;
  /** Set while another does. */
  follower: Follower | undefined;
  /** How many look for their place in it: what is there of it stays. */
  joining: number;
}

export interface SharedOptions extends JoinableOptions {
  readonly calls: RunCalls;
  readonly codec: RunCodec;
}

/** What an instance knows of runs. */
export interface SharedState extends SharedOptions {
  /** By their ids, until they are over. */
  readonly runsHere: Map<string, LocalRun>;
  readonly flush: RunFlush;
  readonly following: FollowerOptions;
  /** Claims under way, by the ids of their runs. */
  readonly claims: Map<string, Promise<void>>;
  readonly lostClaims: LostClaims;
  logTimer: NodeJS.Timeout | undefined;
}

/** Adds a run, whose stream before `from` is not there. */
export function addRun(
  state: SharedState,
  id: string,
  options: Pick<RunOptions, 'requestId' | 'progress'> & { readonly from: number },
): LocalRun {
  const one = new RunHere(state, id, options);
  state.runsHere.set(id, one);
  return one;
}

/** It is the options of its run, too. A class: closures of each run would take more time and more memory. */
class RunHere implements LocalRun, RunOptions {
  readonly id: string;
  readonly run: Run;
  readonly requestId: string;
  readonly progress: Progress;
  readonly log: RunLog;
  readonly maxBytes: number;
  held: LocalRun['held'] = undefined;
  follower: Follower | undefined = undefined;
  joining = 0;
  readonly state: SharedState;

  constructor(state: SharedState, id: string, { requestId, progress, from }: Parameters<typeof addRun>[2]) {
    this.state = state;
    this.id = id;
    this.requestId = requestId;
    this.progress = progress;
    this.log = runLog(state.budget, from);
    this.maxBytes = state.maxBytes;
    this.run = newRun(this);
  }

  askOtherInstances(): Promise<unknown> | undefined {
    return askOtherInstances(this.state, this);
  }

  /** The one who carries the run waits for those who come back. */
  graceMs(): number {
    return this.held ? this.state.times.graceMs : 0;
  }

  onSessionEnd(): void {
    this.held?.others.endUnread(SESSION_OVER);
  }

  onLeft(outcome: LeftRunOutcome): void {
    if (this.held) this.state.onLeft(this.run, outcome);
  }

  onChange(): void {
    const { id, state, run } = this;
    if (!run.isOver()) return;
    if (state.runsHere.get(id) === this) state.runsHere.delete(id);
    // The end of a run that is carried here must be stored first.
    if (!this.held) state.codec.forget(id);
    closeUnread(this);
  }
}

/** Asks at once who follows a run that is carried here; undefined if no other instance can know it. */
export function askOtherInstances(
  { flush }: SharedState,
  { held: own }: LocalRun,
): Promise<unknown> | undefined {
  if (!own || own.held.isLostByRedis) return undefined;
  own.held.isAsking = true;
  return flush.flushNow();
}

/** Forgets the stream of a run that is over, and that nobody reads. */
export function closeUnread({ run, joining }: LocalRun): void {
  if (run.isOver() && run.clients() === 0 && joining === 0) dropLog(run.log);
}
