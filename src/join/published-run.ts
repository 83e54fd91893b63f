import { asProblem, Problem } from '../errors.ts';
import { isWhole } from './ended-run.ts';
import { holdBack, releaseWaiting, waitingOutlet } from './first-id.ts';
import { type HeldRun, isAwaited, note } from './held-run.ts';
import { type Progress, RUN_ELSEWHERE, type Run } from './run.ts';
import { type Batch, LEASE_MS } from './run-calls.ts';
import type { RunFlush } from './run-flush.ts';
import { RUN_DROPPED } from './run-follower.ts';
import { RUN_LOST } from './run-lost.ts';
import type { Outlet } from './run-outlet.ts';
import type { RunClient } from './run-seats.ts';
import type { RunStream } from './run-stream.ts';

/** After so long without an answer of Redis, the lease may be lost, in ms. */
const SURE_MS = LEASE_MS - 1_000;

/** A run for the one who carries it: what happens to it is stored, too. */
export interface PublishedRun {
  readonly run: Run;
  /** Another instance has the run: what carries it here ends, without a word to those who read it. */
  detach(): void;
}

export interface PublishOptions {
  readonly flush: RunFlush;
  readonly maxBytes: number;
  /** Whether the run stays readable after its end. */
  readonly isKept: boolean;
}

interface State extends PublishOptions {
  readonly held: HeldRun;
  readonly stop: AbortController;
  /** What waits until it is known whether the lease is lost; undefined if it is not in doubt. */
  delayed: (() => void)[] | undefined;
  isDetached: boolean;
  /** Whether another instance had stored an id before this one took the run. */
  hasStoredId: boolean;
}

/** Publishes a run that this instance holds. */
export function publishedRun(held: HeldRun, options: PublishOptions): PublishedRun {
  const state: State = {
    ...{ ...options, held, stop: new AbortController() },
    ...{ delayed: undefined, isDetached: false, hasStoredId: false },
  };
  const { run } = held;
  const { flush } = state;
  const abort = () => state.stop.abort(run.stop.signal.reason);
  if (run.stop.signal.aborted) abort();
  else run.stop.signal.addEventListener('abort', abort, { once: true });
  const published: Run = {
    ...unchanged(run),
    stop: state.stop,
    stream: streamOf(state),
    begin(head) {
      held.head = { head: [...head], headers: [...run.headers] };
      held.hasBegun = true;
      if (isAwaited(held)) flush.flushSoon();
      run.begin(head);
    },
    keep(hold) {
      held.hold = hold;
    },
    mayLeave: () => mayLeave(state),
    isSure: () => !state.isDetached && isSure(state),
    over(error) {
      if (state.isDetached) return;
      releaseWaiting(held);
      run.over(error);
      ended(state, error);
    },
  };
  return { run: published, detach: () => detach(state) };
}

/** What is the same whether or not it is stored. */
function unchanged(run: Run) {
  const { requestId, progress, log, headers } = run;
  return {
    ...{ requestId, progress, log, headers },
    sit: (client: RunClient) => run.sit(client),
    sitElsewhere: (stop: AbortController) => run.sitElsewhere(stop),
    endAll: (problem: Problem) => run.endAll(problem),
    refused: () => run.refused(),
    isOver: () => run.isOver(),
    outcome: () => run.outcome(),
    isGivenUp: () => run.isGivenUp(),
    isAlone: () => run.isAlone(),
    clients: () => run.clients(),
  };
}

function streamOf(state: State): RunStream {
  const { stream } = state.held.run;
  return {
    outlet: outletOf(state),
    read: (outlet, at, closed) => stream.read(outlet, at, closed),
    ended: () => stream.ended(),
    abandon: () => stream.abandon(),
  };
}

function outletOf(state: State): Outlet {
  const { held, maxBytes } = state;
  const outlet = waitingOutlet(held);
  return {
    isFull: outlet.isFull,
    hasBegun: outlet.hasBegun,
    open(source) {
      held.source = source;
      state.hasStoredId = source.resumeState?.() !== undefined;
      outlet.open(source);
    },
    write: (bytes, isInside) =>
      act(state, () => {
        held.isInside = isInside;
        const kept = Buffer.from(bytes);
        note(held, { bytes: kept, isInside }, maxBytes);
        if (storeSoon(state)) holdBack(held, kept, isInside);
        else outlet.write(kept, isInside);
      }),
    complete: () => act(state, outlet.complete),
    endEarly: (problem, isCut) => act(state, () => outlet.endEarly(problem, isCut)),
  };
}

/** From the first id on, the run need not end with this instance. Returns whether that must be stored first. */
function storeSoon(state: State): boolean {
  const { held, flush } = state;
  if (held.isResumable || !held.source?.resumeState?.()) {
    if (isAwaited(held)) flush.flushSoon();
    return false;
  }
  held.isResumable = true;
  flush.flushInThisTurn(held);
  return held.log === 'open' && !state.hasStoredId;
}

/** A process that was stopped must not go on with a stream that another instance goes on with: it asks first. */
function act(state: State, work: () => void): void {
  if (state.isDetached) return;
  if (state.delayed) state.delayed.push(work);
  else if (isSure(state)) work();
  else {
    state.delayed = [work];
    state.held.isSourceAhead = true;
    state.held.source?.full();
    void state.flush.flushNow().then(() => settle(state));
  }
}

/** Without an answer, the readers go on: nobody can take a run whose Redis is away. */
function settle(state: State): void {
  const { delayed = [], held } = state;
  state.delayed = undefined;
  if (state.isDetached) return;
  for (const [n, work] of delayed.entries()) {
    held.isSourceAhead = n < delayed.length - 1;
    work();
  }
  if (!held.waiting && !held.run.stream.outlet.isFull()) held.source?.drained();
}

function isSure({ held }: State): boolean {
  return held.isLostByRedis || performance.now() - held.confirmedAt < SURE_MS;
}

async function mayLeave(state: State): Promise<void> {
  await state.held.run.mayLeave();
  if (!state.isDetached && isSure(state)) return;
  await state.flush.flushNow();
  state.stop.signal.throwIfAborted();
  if (state.isDetached || !isSure(state)) {
    throw new Problem('session_store_unavailable', 'Messages can not be sent right now; try again.', {
      retryAfter: 1,
    });
  }
}

function detach(state: State): void {
  state.isDetached = true;
  const { source } = state.held;
  state.held.source = undefined;
  source?.closed();
  state.stop.abort(RUN_ELSEWHERE);
}

/** The run is over: notes how. */
function ended({ held, flush, isKept }: State, error: unknown): void {
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
  held.source = undefined;
  flush.flushSoon();
}

function stateAfter(run: Run, isKept: boolean): Batch['state'] {
  if (!run.progress.mayHaveStarted) return 'free';
  if (!isKept || !isWhole(run)) return 'over';
  return run.stream.ended()?.problem || !run.stream.ended() ? 'broken' : 'kept';
}
