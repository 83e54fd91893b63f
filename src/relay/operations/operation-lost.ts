import { Problem, type ProblemCode } from '../../errors.ts';
import { asAnswerLost } from '../upstream/answer-lost.ts';
import { type Operation, SUSPEND } from './operation-table.ts';

/** Problems after which the service has certainly done nothing. */
const NOT_DONE: ReadonlySet<ProblemCode> = new Set(['upstream_refused', 'upstream_rate_limited']);

/**
 * The error for an operation that has left for the bot service and then failed with `error`: the service may have done
 * it, so that nobody may send it again, unless it may be sent twice or was refused.
 */
export function asOperationLost(operation: Operation, error: unknown): unknown {
  if (isSafeTwice(operation) || (error instanceof Problem && NOT_DONE.has(error.code))) return error;
  return asAnswerLost(error);
}

/** Whether it may be sent twice. To clear or delete late may take what was said since. */
function isSafeTwice(operation: Operation): boolean {
  return operation.method === 'GET' || operation === SUSPEND;
}
