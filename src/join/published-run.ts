import { asProblem, Problem } from '../errors.ts';
import { isWhole } from './ended-run.ts';
import { releaseWaiting } from './first-id.ts';
import { type HeldRun, isAwaited } from './held-run.ts';
import type { Progress, Run } from './run.ts';
import type { Batch } from './run-calls.ts';
import { RUN_DROPPED } from './run-follower.ts';
import type { RunLog } from './run-log.ts';
import { RUN_LOST } from './run-lost.ts';
import type { RunClient, RunOutcome, Seat } from './run-seats.ts';
import { type StoredStream, type StoredStreamOptions, storedStream } from './stored-stream.ts';

/** A run for the one who carries it: what happens to it is stored, too. */
export interface PublishedRun {
  readonly run: Run;
  /** Another instance has the run: what carries it here ends, without a word to those who read it. */
  detach(): void;
}

export interface PublishOptions extends StoredStreamOptions {
  /** Whether the run stays readable after its end. */
  readonly isKept: boolean;
}

/** Publishes a run that this instance holds. */
export function publishedRun(held: HeldRun, options: PublishOptions): PublishedRun {
  return new StoredRun(held, options);
}

/** A class: closures of each run would take more time and more memory. */
class StoredRun implements PublishedRun, Run {
  readonly held: HeldRun;
  readonly options: PublishOptions;
  readonly stop: AbortController;
  readonly stream: StoredStream;

  constructor(held: HeldRun, options: PublishOptions) {
    this.held = held;
    this.options = options;
    this.stop = held.run.stop;
    this.stream = storedStream(held, options);
  }

  get run(): Run {
    return this;
  }

  get requestId(): string {
    return this.held.run.requestId;
  }

  get progress(): Progress {
    return this.held.run.progress;
  }

  get log(): RunLog {
    return this.held.run.log;
  }

  get headers(): Map<string, string> {
    return this.held.run.headers;
  }

  sit(client: RunClient): Seat {
    return this.held.run.sit(client);
  }

  sitElsewhere(stop: AbortController): Seat {
    return this.held.run.sitElsewhere(stop);
  }

  endAll(problem: Problem): void {
    this.held.run.endAll(problem);
  }

  mayLeave(): Promise<void> | undefined {
    const asked = this.held.run.mayLeave();
    return asked || !this.isSure() ? whenSure(this, asked) : undefined;
  }

  isSure(): boolean {
    return this.stream.isSure();
  }

  keep(hold: () => unknown): void {
    this.held.hold = hold;
  }

  refused(): void {
    this.held.run.refused();
  }

  moveElsewhere(): void {
    this.held.run.moveElsewhere();
  }

  begin(head: ReadonlyMap<string, string>): void {
    const { held, options } = this;
    held.head = { head: [...head], headers: [...held.run.headers] };
    held.hasBegun = true;
    if (isAwaited(held)) options.flush.flushSoon();
    held.run.begin(head);
  }

  over(error?: unknown): void {
    if (this.stream.isDetached) return;
    releaseWaiting(this.held);
    this.held.run.over(error);
    noteEnd(this.held, this.options, error);
  }

  isOver(): boolean {
    return this.held.run.isOver();
  }

  outcome(): RunOutcome {
    return this.held.run.outcome();
  }

  isGivenUp(): boolean {
    return this.held.run.isGivenUp();
  }

  isAlone(): boolean {
    return this.held.run.isAlone();
  }

  clients(): number {
    return this.held.run.clients();
  }

  detach(): void {
    this.stream.detach();
    this.moveElsewhere();
  }
}

async function whenSure(
  { stream, options, stop }: StoredRun,
  asked: Promise<void> | undefined,
): Promise<void> {
  await asked;
  if (stream.isSure()) return;
  await options.flush.flushNow();
  stop.signal.throwIfAborted();
  if (!stream.isSure()) {
    throw new Problem('session_store_unavailable', 'Messages can not be sent right now; try again.', {
      retryAfter: 1,
    });
  }
}

/** The run is over: notes how. */
function noteEnd(held: HeldRun, { flush, isKept }: PublishOptions, error: unknown): void {
  const { run } = held;
  const how = run.stream.ended();
  const { hasLeft, mayHaveStarted }: Progress = run.progress;
  // Those who wait elsewhere have not left.
  const isDropped = !mayHaveStarted && (error === RUN_DROPPED || !isWhole(run));
  const problem = how ? how.problem : run.isGivenUp() ? RUN_LOST : asProblem(error);
  held.end = {
    how: {
      ...{ problem, isCut: how?.problem ? how.isCut : false, at: run.log.end, isDropped },
      ...{ progress: { hasLeft, mayHaveStarted }, headers: [...run.headers] },
    },
    state: stateAfter(run, isKept),
  };
  // Nobody takes over what is over: the message is freed, however long its end waits to be stored.
  held.source = held.hold = undefined;
  flush.flushSoon();
}

function stateAfter(run: Run, isKept: boolean): Batch['state'] {
  if (!run.progress.mayHaveStarted) return 'free';
  if (!isKept || !isWhole(run)) return 'over';
  return run.stream.ended()?.problem || !run.stream.ended() ? 'broken' : 'kept';
}
