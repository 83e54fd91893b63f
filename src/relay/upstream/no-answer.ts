import { Problem, type ProblemOptions } from '../../errors.ts';

/** Too many open files: of this process, or of the system. */
const NO_FILE_LEFT: readonly unknown[] = ['EMFILE', 'ENFILE'];

/**
 * The problem of a request that has got no answer, by the error code that is its `cause`: `busy` if this process could
 * open no connection, which is no fault of the bot service.
 */
export function noAnswer(options: ProblemOptions): Problem {
  return NO_FILE_LEFT.includes(options.cause)
    ? new Problem('busy', 'The relay cannot open a connection. Try again.', { ...options, retryAfter: 1 })
    : new Problem('upstream_unreachable', 'The bot service did not answer.', options);
}
