import { Problem, type ProblemCode } from '../errors.ts';
import { newRun, type Progress, type Run, type RunOptions } from './run.ts';
import type { RunLog } from './run-log.ts';
import type { StreamEnd } from './run-stream.ts';

/** What is kept of a run that is over and that nobody reads. The run itself takes several times as much memory. */
export interface EndedRun {
  readonly requestId: string;
  readonly progress: Progress;
  readonly log: RunLog;
  /** Names and values in turns, which take less memory than a map. */
  readonly headers: readonly string[];
  /** The headers with which its stream began, if it did. */
  readonly head: readonly string[] | undefined;
  /** What its message has failed with. */
  readonly failure: unknown;
  readonly end: StreamEnd | undefined;
}

/** After these ends the answer is not there for anybody else, though its run may have gone on. */
const NOT_KEPT: ReadonlySet<ProblemCode> = new Set([
  'session_ended',
  'draining',
  'too_many_streams',
] as const);

const NOTHING: readonly string[] = [];

/** What has to be kept of a run that is over. */
export function endedRun(run: Run): EndedRun {
  const { requestId, progress, log, stream, headers } = run;
  const { head, failure } = run.outcome();
  return {
    requestId,
    progress,
    log,
    headers: flatOf(headers),
    head: head && flatOf(head),
    failure,
    end: stream.ended(),
  };
}

export interface RunOfEndedOptions extends Pick<RunOptions, 'maxBytes'> {
  /** Called when a client has taken a seat. */
  readonly onSeat: () => void;
  /** Called when its last client is gone. */
  readonly onChange: () => void;
}

/** Makes a run of what was kept of it, for those who read it again. */
export function runOfEnded(
  { requestId, progress, log, headers, head, failure, end }: EndedRun,
  { maxBytes, onSeat, onChange }: RunOfEndedOptions,
): Run {
  const run = newRun({
    ...{ requestId, progress, log, maxBytes, graceMs: () => 0, onLeft() {}, onSeat },
    onChange: () => isMade && onChange(),
  });
  let isMade = false;
  for (const [name, value] of mapOf(headers)) run.headers.set(name, value);
  if (head) run.begin(mapOf(head));
  if (end?.problem) run.stream.outlet.endEarly(end.problem, end.isCut);
  else if (end) run.stream.outlet.complete();
  run.over(failure);
  isMade = true;
  return run;
}

/** Whether the run has an end that others may have, too. */
export function isWhole(run: Run): boolean {
  const ended = run.stream.ended();
  if (run.isGivenUp()) return false;
  if (ended && !ended.problem) return true;
  // Who came back would get the same cut again.
  if (ended?.isCut && run.log.end > 0) return false;
  // Before its stream, only `stop` knows what has ended it.
  const causes: readonly unknown[] = [ended?.problem, run.stop.signal.reason];
  return !causes.some((cause) => cause instanceof Problem && NOT_KEPT.has(cause.code));
}

function flatOf(map: ReadonlyMap<string, string>): readonly string[] {
  if (map.size === 0) return NOTHING;
  // An array to which is pushed takes memory for more.
  const flat = new Array<string>(2 * map.size);
  let at = 0;
  for (const [name, value] of map) {
    flat[at++] = name;
    flat[at++] = value;
  }
  return flat;
}

function mapOf(flat: readonly string[]): Map<string, string> {
  const map = new Map<string, string>();
  for (let at = 0; at + 1 < flat.length; at += 2) map.set(flat[at] as string, flat[at + 1] as string);
  return map;
}
