import { Problem } from '../../errors.ts';

/** Statuses that neither load balancers nor clients take for a message that was not processed. */
const FINAL = new Set([502, 504]);

/**
 * What a message is answered that has gone to the bot service and failed with `error`: never an answer that invites to
 * send it again (RFC 9110 §9.2.2, §15.6.4), since the bot may run. What the service itself has said stays.
 */
export function asAnswerLost(error: unknown): unknown {
  if (!(error instanceof Problem) || FINAL.has(error.status) || error.code === 'upstream_refused')
    return error;
  return new Problem('answer_lost', 'The message has gone to the bot; what came of it is not known.', {
    cause: error.code,
  });
}
