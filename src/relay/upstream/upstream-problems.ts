import { asMaybeStarted, Problem, type ProblemOptions } from '../../errors.ts';

/** Statuses after which neither load balancers nor clients send a request again. */
const FINAL = new Set([502, 504]);

/**
 * The problem for a request that was sent to the bot service and then failed with `error`. It may have been done, so that
 * clients must not send it again (RFC 9110 §9.2.2, §15.6.4): its `maybeStarted` is true. A refusal by the service itself
 * stays, and so does an error that is no problem.
 */
export function asAnswerLost(error: unknown): unknown {
  if (!(error instanceof Problem) || error.code === 'upstream_refused') return error;
  if (FINAL.has(error.status)) return asMaybeStarted(error);
  return new Problem('answer_lost', 'The request was sent to the bot service; its result is not known.', {
    cause: error.code,
    maybeStarted: true,
  });
}

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

/** One day. */
const MAX_RETRY_AFTER_S = 86_400;

/** `Retry-After`, which is in seconds or a date (RFC 9110 §10.2.3), as whole seconds from now; 1 by default. */
export function retryAfterSeconds(header: string | undefined, now: number): number {
  const text = header?.trim() ?? '';
  const seconds = /^\d+$/.test(text) ? Number(text) : Math.ceil((Date.parse(text) - now) / 1000);
  return Math.min(Math.max(Number.isNaN(seconds) ? 1 : seconds, 1), MAX_RETRY_AFTER_S);
}
