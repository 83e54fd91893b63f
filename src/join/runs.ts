import { Problem } from '../errors.ts';
import { endedRun, isWhole, runOfEnded } from './ended-run.ts';
import { type InOrderOfAge, inOrderOfAge } from './in-order-of-age.ts';
import { logPlaceAfter } from './log-place.ts';
import type { LeftRunOutcome } from './lone-run.ts';
import { newRun, type Progress, type Run } from './run.ts';
import { dropLog, type LogBudget, runLog, startOfLog } from './run-log.ts';
import type { RunName } from './run-name.ts';
import { type NamedRun, runNames } from './run-names.ts';

/** A run that a client may join. */
export interface FoundRun {
  readonly run: Run;
  /** From which offset of its stream on. */
  readonly at: number;
  /** `live` while it goes on, `ended` while it is only kept. */
  readonly state: 'live' | 'ended';
}

/** The runs of this instance by their names. Each method takes its effect before it returns. */
export interface Runs {
  /**
   * The run of this name, with `lastEventId` from after that event on; undefined if a message of this name is to be
   * sent.
   * @throws Problem `run_over`, `run_not_kept`; neither with `lastEventId`
   */
  find(name: RunName, lastEventId: string | undefined): FoundRun | undefined;
  /** The newest run of a message id. @throws Problem `run_over`, `run_not_kept` */
  findNewest(message: string, lastEventId: string | undefined): FoundRun;
  /** Begins the run of a name that `find` does not know. */
  claim(name: RunName, begins: { readonly requestId: string; readonly progress: Progress }): Run;
  /** Forgets the names of a conversation; runs go on for those who read them. */
  forget(conversation: string, except?: RunName): void;
  /** How many bytes all logs take. */
  bytes(): number;
  /** How many names are known. */
  count(): number;
}

export interface RunsOptions {
  /** How long a run is kept after its end, its name is remembered after that, and a run goes on alone, in ms. */
  readonly times: { readonly keepMs: number; readonly rememberMs: number; readonly graceMs: number };
  /** How many bytes of a run are kept. */
  readonly maxBytes: number;
  /** Bounds all logs together. */
  readonly budget: LogBudget & { bytes(): number };
  readonly maxNames?: number;
  /** Called for each run that went on alone. */
  readonly onLeft: (run: Pick<Run, 'requestId'>, outcome: LeftRunOutcome) => void;
}

const MAX_NAMES = 1_000_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
type Found = Pick<NamedRun, 'name' | 'run'>;

interface State extends RunsOptions {
  readonly maxNames: number;
  readonly names: ReturnType<typeof runNames>;
  readonly logs: LogBudget;
  readonly graceMs: () => number;
  /** Ended runs that are kept, the oldest first; each for the same time. */
  readonly kept: InOrderOfAge<NamedRun>;
  /** Names of runs that are not kept any more, the oldest first. */
  readonly remembered: InOrderOfAge<NamedRun>;
  timer: { readonly timeout: NodeJS.Timeout; readonly at: number } | undefined;
}

/** Keeps runs and their names in the memory of this process. */
export function openRuns(options: RunsOptions): Runs {
  const state: State = {
    ...{ maxNames: MAX_NAMES, ...options, names: runNames() },
    ...{ kept: inOrderOfAge(), remembered: inOrderOfAge(), timer: undefined },
    graceMs: () => options.times.graceMs,
    logs: { release: options.budget.release, take: (bytes) => takeForLog(state, bytes) },
  };
  const { names, budget } = state;
  return {
    find(name, lastEventId) {
      sweep(state);
      const named = awake(state, names.find(name));
      if (!named) return undefined;
      return lastEventId === undefined ? wholeRun(named) : restOfRun(named, lastEventId);
    },
    findNewest(message, lastEventId) {
      sweep(state);
      const run = awake(state, names.newest(message))?.run;
      if (!run || run.isGivenUp()) throw over();
      const found = placeIn(run, lastEventId);
      if (!found) throw run.isOver() && lastEventId === undefined ? over() : notKept();
      return found;
    },
    claim: (name, begins) => claim(state, name, begins),
    forget(conversation, except) {
      const others = names.deleteConversation(conversation, except && names.find(except));
      for (const named of others) unlinkRun(state, named);
    },
    bytes: budget.bytes,
    count: names.count,
  };
}

function claim(state: State, name: RunName, begins: { requestId: string; progress: Progress }): Run {
  const { names, maxBytes, graceMs, onLeft } = state;
  while (names.count() >= state.maxNames && forgetOldest(state)) {}
  const run = newRun({
    log: runLog(state.logs),
    maxBytes,
    graceMs,
    requestId: begins.requestId,
    progress: begins.progress,
    onLeft: (outcome) => onLeft(run, outcome),
    onChange: () => changed(state, named, run),
  });
  const named = names.add(name, run);
  return run;
}

/** A name with its run, made again if only what is kept of that is there. Without a client, that is not kept. */
function awake(state: State, named: NamedRun | undefined): Found | undefined {
  if (!named?.ended || named.run) return named;
  const run = runOfEnded(named.ended, {
    maxBytes: state.maxBytes,
    onSeat: () => {
      named.run = run;
    },
    onChange: () => changed(state, named, run),
  });
  return { name: named.name, run };
}

/** Ended runs make room for those that live. */
function takeForLog(state: State, bytes: number): boolean {
  while (!state.budget.take(bytes)) {
    const oldest = state.kept.oldest();
    if (!oldest) return false;
    keepNameOnly(state, oldest);
  }
  return true;
}

/** A run from its beginning; undefined if its message was not sent, or may be sent again. */
function wholeRun({ name, run }: Found): FoundRun | undefined {
  const isDropped = run?.isGivenUp() && !(name.isKept && run.progress.mayHaveStarted);
  if (isDropped) return undefined;
  if (!run || run.isGivenUp()) throw over();
  const found = placeIn(run, undefined);
  if (!found) throw run.isOver() ? over() : notKept();
  return found;
}

/** A run from after an event; undefined if it does not have that, or did not end well: the service may have more. */
function restOfRun({ run }: Found, lastEventId: string): FoundRun | undefined {
  if (!run || run.isGivenUp() || run.stream.ended()?.problem) return undefined;
  return run.isOver() && !run.stream.ended() ? undefined : placeIn(run, lastEventId);
}

/** Where a client can begin to read; undefined if that is not kept. */
export function placeIn(run: Run, lastEventId: string | undefined): FoundRun | undefined {
  const at = lastEventId === undefined ? 0 : logPlaceAfter(run.log, lastEventId);
  if (at === undefined || at < startOfLog(run.log)) return undefined;
  return { run, at, state: run.isOver() ? 'ended' : 'live' };
}

/** The run is over, or its last client has gone after that. Without a client, only what `endedRun` tells is kept of it. */
function changed(state: State, named: NamedRun, run: Run): void {
  const { names, kept, times } = state;
  if (!run.isOver()) return;
  if (named.expiresAt === Number.POSITIVE_INFINITY && named.isNamed) {
    const isKept = named.name.isKept && run.progress.mayHaveStarted;
    named.expiresAt = performance.now() + times.keepMs;
    if (!isKept) names.delete(named);
    else if (times.keepMs > 0 && isWhole(run)) {
      named.ended = endedRun(run);
      kept.add(named);
      planFor(state, named.expiresAt);
    } else keepNameOnly(state, named);
  }
  if (run.clients() > 0) return;
  if (!kept.has(named)) dropLog(run.log);
  else if (named.run === run) named.run = undefined;
}

/** Keeps nothing of a run but its name. */
function keepNameOnly(state: State, named: NamedRun): void {
  const { times, names, remembered } = state;
  names.retire(named);
  unlinkRun(state, named);
  named.expiresAt = performance.now() + times.rememberMs;
  remembered.add(named);
  planFor(state, named.expiresAt);
}

/** The name does not lead to its run any more. */
function unlinkRun({ kept, remembered }: State, named: NamedRun): void {
  const { run, ended } = named;
  kept.delete(named);
  remembered.delete(named);
  named.expiresAt = 0;
  named.ended = undefined;
  if (!run && ended) dropLog(ended.log);
  if (!run?.isOver()) return;
  named.run = undefined;
  if (run.clients() === 0) dropLog(run.log);
}

function forgetOldest(state: State): boolean {
  const oldest = state.remembered.oldest() ?? state.kept.oldest();
  if (!oldest) return false;
  unlinkRun(state, oldest);
  state.names.delete(oldest);
  return true;
}

/** Forgets what is too old. Before the time of its timer, nothing is. */
function sweep(state: State): void {
  const { kept, remembered, names, timer } = state;
  const now = performance.now();
  if (timer && now < timer.at) return;
  for (let named = kept.oldest(); named && named.expiresAt <= now; named = kept.oldest())
    keepNameOnly(state, named);
  for (let named = remembered.oldest(); named && named.expiresAt <= now; named = remembered.oldest()) {
    unlinkRun(state, named);
    names.delete(named);
  }
  for (const oldest of [kept.oldest(), remembered.oldest()]) if (oldest) planFor(state, oldest.expiresAt);
}

/** Sees to it that the timer sweeps at that time, or before. */
function planFor(state: State, expiresAt: number): void {
  if (expiresAt >= (state.timer?.at ?? Number.POSITIVE_INFINITY)) return;
  clearTimeout(state.timer?.timeout);
  const ms = Math.min(MAX_TIMER_MS, Math.max(1, expiresAt - performance.now()));
  const timeout = setTimeout(() => {
    state.timer = undefined;
    sweep(state);
  }, ms);
  state.timer = { timeout: timeout.unref(), at: expiresAt };
}

/** The run of a name is not there any more. */
export function over(): Problem {
  return new Problem('run_over', 'The run of this message is over, and its answer is not kept any more.');
}

/** The beginning of a run, or the event that was asked for, is not there. */
export function notKept(): Problem {
  return new Problem('run_not_kept', 'The beginning of this answer is not kept any more.');
}
