import { asMaybeStarted, Problem } from '../errors.ts';
import { asAnswerLost } from '../relay/upstream/upstream-problems.ts';

/** The run of a name is not there any more. */
export const RUN_OVER = new Problem(
  'run_over',
  'The run of this message is over, and its answer is not kept any more.',
);

/** The beginning of a run, or the event that was asked for, is not there. */
export const NOT_KEPT = new Problem('run_not_kept', 'The beginning of this answer is not kept any more.');

/** A stop of the conversation has dropped a message that waited. */
export const STOPPED = new Problem('stopped', 'The message was stopped before it was sent to the bot.');

/** The end of a run of another instance whose message was not sent: who waits for it may send the message. */
export const NAME_IS_FREE = new Problem(
  'session_store_unavailable',
  'Messages can not be sent right now; try again.',
  { retryAfter: 1 },
);

/** What a shutdown says to those whose message was sent. */
export const LOST_BY_SHUTDOWN = new Problem(
  'answer_lost',
  'The relay was restarted while this answer was on its way. What is here of it is not complete.',
  { cause: 'draining', maybeStarted: true },
);

/** What ends a reader of a run: the words of a shutdown depend on whether the message was sent. */
export function endingOf(problem: Problem, { mayHaveRun }: { readonly mayHaveRun: boolean }): Problem {
  return problem.code === 'draining' && mayHaveRun ? LOST_BY_SHUTDOWN : problem;
}

/** With what a reader's wait for the stream of a run ends. */
export function failureOf(reason: unknown, run: { readonly mayHaveRun: boolean }): unknown {
  // A stop has dropped it while the name was claimed.
  const isLost = reason instanceof Problem && reason !== STOPPED && run.mayHaveRun;
  return isLost ? asAnswerLost(endingOf(reason, run)) : reason;
}

/** Whether a shutdown has ended something with `problem`. */
export function isShutdown(problem: Problem | undefined): boolean {
  return problem?.code === 'draining' || problem === LOST_BY_SHUTDOWN;
}

/** What ends a reader. Its run goes on, but what this reader has not got is not there any more. */
export const TOO_SLOW = new Problem('reader_too_slow', 'This reader fell too far behind the answer.');

/** The end of a run whose instance is lost, or of which what is stored has gone or cannot be read. */
export const RUN_LOST = asMaybeStarted(
  new Problem('answer_lost', 'The relay has lost this answer; it is not complete.', { cause: 'run_lost' }),
);
