import { asMaybeStarted, Problem } from '../errors.ts';

/** The end of a run whose instance is lost, or of which what is stored has gone or cannot be read. */
export const RUN_LOST = asMaybeStarted(
  new Problem('answer_lost', 'The relay has lost this answer; it is not complete.', { cause: 'run_lost' }),
);
