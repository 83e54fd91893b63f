import { asMaybeStarted, Problem } from '../errors.ts';
import { asAnswerLost } from '../relay/upstream/upstream-problems.ts';

/** The run of a message has ended, and the answer is not kept. */
export const RUN_OVER = new Problem(
  'run_over',
  'The run of this message is over, and its answer is not kept any more.',
);

/** The beginning of an answer, or the event that was asked for, is not in the log any more. */
export const NOT_KEPT = new Problem('run_not_kept', 'The beginning of this answer is not kept any more.');

/** A stop of the conversation has dropped a message that waited. */
export const STOPPED = new Problem('stopped', 'The message was stopped before it was sent to the bot.');

/** A run of another instance has ended without having been sent: a client that waits for it may send the message. */
export const NAME_IS_FREE = new Problem(
  'session_store_unavailable',
  'Messages can not be sent right now; try again.',
  { retryAfter: 1 },
);

/** Ends the readers of a message that was sent, at a shutdown. */
export const LOST_BY_SHUTDOWN = new Problem(
  'answer_lost',
  'The relay was restarted while this answer was on its way. What is here of it is not complete.',
  { cause: 'draining', maybeStarted: true },
);

/**
 * What a reader of a run is told if `problem` ends it. At a shutdown, that depends on whether the message may have run.
 */
export function problemForReader(
  problem: Problem,
  { mayHaveRun }: { readonly mayHaveRun: boolean },
): Problem {
  return problem.code === 'draining' && mayHaveRun ? LOST_BY_SHUTDOWN : problem;
}

/** With what a reader's wait for the stream of a run ends, if `reason` has ended it. */
export function failureOf(reason: unknown, run: { readonly mayHaveRun: boolean }): unknown {
  // A run that was stopped before it was sent has not run.
  const isLost = reason instanceof Problem && reason !== STOPPED && run.mayHaveRun;
  return isLost ? asAnswerLost(problemForReader(reason, run)) : reason;
}

/** Whether a shutdown has ended something with `problem`. */
export function isShutdown(problem: Problem | undefined): boolean {
  return problem?.code === 'draining' || problem === LOST_BY_SHUTDOWN;
}

/** Ends a reader that has not got what is not in the log any more. Its run goes on. */
export const TOO_SLOW = new Problem('reader_too_slow', 'This reader fell too far behind the answer.');

/** The instance of the run is lost, or what is stored of the run is gone or cannot be read. */
export const RUN_LOST = asMaybeStarted(
  new Problem('answer_lost', 'The relay has lost this answer; it is not complete.', { cause: 'run_lost' }),
);
