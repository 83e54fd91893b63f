import { asMaybeStarted, Problem } from '../../errors.ts';

/** Statuses after which neither load balancers nor clients send a request again. */
const FINAL = new Set([502, 504]);

/**
 * The problem for a request that was sent to the bot service and then failed with `error`: never an answer after which
 * clients send it again (RFC 9110 §9.2.2, §15.6.4), since it may have been done; its `maybeStarted` is true. A refusal by the
 * service itself stays, and so does an error that is no problem.
 */
export function asAnswerLost(error: unknown): unknown {
  if (!(error instanceof Problem) || error.code === 'upstream_refused') return error;
  if (FINAL.has(error.status)) return asMaybeStarted(error);
  return new Problem('answer_lost', 'The request was sent to the bot service; its result is not known.', {
    cause: error.code,
    maybeStarted: true,
  });
}
