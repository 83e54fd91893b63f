import { Problem, type ProblemCode } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-connection.ts';
import type { Run } from './run.ts';
import type { StoredEnd } from './run-codec.ts';

/** What ends a run for a reason of its own instance, or of its readers there. */
const OF_INSTANCE: readonly ProblemCode[] = ['session_ended', 'draining', 'session_store_unavailable'];

/** How a run that was carried here has ended, for its readers at other instances. */
export function storedEnd(run: Run): StoredEnd {
  const { failure, stream, phase, mayHaveRun, upstreamStatus, headers } = run;
  const { ended } = stream;
  return {
    problem: ended?.problem,
    isCut: ended?.problem !== undefined && ended.isCut,
    at: stream.log.end,
    isFree: !mayHaveRun && (failure === CLIENT_LEFT || isOneOf(failure, OF_INSTANCE)),
    ...{ phase, upstreamStatus, headers: [...headers] },
  };
}

/** What becomes of the name of a run that has ended: free, remembered as one that has run, or kept with its answer. */
export function nameAfter({ name, mayHaveRun, failure, stream, stop }: Run): 'free' | 'over' | 'kept' {
  if (!name?.outlivesRun || !mayHaveRun) return 'free';
  const { ended, log } = stream;
  // A client that came back would get the same cut again.
  const isCut = ended?.problem !== undefined && ended.isCut && log.end > 0;
  // The answer is not for others if its client left, or its session ended.
  const causes: readonly unknown[] = [failure, ended?.problem, stop.signal.reason];
  const isGone = causes.some((cause) => cause === CLIENT_LEFT || isOneOf(cause, ['session_ended']));
  return isCut || isGone ? 'over' : 'kept';
}

function isOneOf(cause: unknown, codes: readonly ProblemCode[]): boolean {
  return cause instanceof Problem && codes.includes(cause.code);
}
