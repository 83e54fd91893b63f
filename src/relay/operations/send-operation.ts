import type { IncomingMessage, ServerResponse } from 'node:http';
import { Problem, type ProblemCode } from '../../errors.ts';
import type { RelayObserver } from '../upstream/relay-observer.ts';
import { asAnswerLost, noAnswer } from '../upstream/upstream-problems.ts';
import { judgeOperation, type OperationAnswer } from './judge-operation.ts';
import { operationProxy, type ProxySending } from './operation-proxy.ts';
import { maxAnswerBytesOf, type Operation, SUSPEND } from './operation-table.ts';
import type { UploadBody } from './upload-body.ts';

interface SendOperationOptions {
  readonly baseUrl: Readonly<URL>;
  /** How long sending and answer may take together, in ms, unless the operation may take longer. */
  readonly responseTimeoutMs: number;
  readonly observer?: Pick<RelayObserver, 'upstreamAnswered' | 'upstreamFailed'> | undefined;
}

/** One sending of an operation, and how to judge its answer. */
export interface OperationSending extends ProxySending {
  readonly operation: Pick<Operation, 'maxAnswerBytes' | 'leastTimeoutMs' | 'givesFile'>;
  /** The form that the request sends, if any. Its own times hold until all of it has been handed over. */
  readonly upload?: Pick<UploadBody, 'signal' | 'done'> | undefined;
  /** Hides secrets in texts of the bot service, and names the conversation as the client does. */
  readonly mask: (text: string) => string;
  /** Called with the status of the bot service as soon as it arrives. */
  readonly onStatus: (status: number) => void;
}

/**
 * Sends an operation with one key, once. Resolves with the answer for the client, or the problem of 401 or 403. Rejects
 * with the signal's reason if that aborts first.
 * @throws Problem `upstream_unreachable`, `busy`, `upstream_bad_response`, `upstream_refused`, `upstream_rate_limited` or
 *   `upstream_timeout`
 */
export type SendOperation = (
  req: IncomingMessage,
  res: ServerResponse,
  sending: OperationSending,
) => Promise<OperationAnswer | Problem>;

const TIMED_OUT = 'The bot service did not answer in time.';

/** Makes the sender to the bot service at `baseUrl`. */
export function operationSender(options: SendOperationOptions): SendOperation {
  const { baseUrl, responseTimeoutMs, observer } = options;
  const proxy = operationProxy(baseUrl);

  async function observed(req: IncomingMessage, res: ServerResponse, sending: OperationSending) {
    const { fingerprint } = sending.key;
    try {
      const answer = await proxy(req, res, sending);
      const { statusCode: status = 0 } = answer;
      sending.onStatus(status);
      observer?.upstreamAnswered(fingerprint, status);
      return answer;
    } catch (error) {
      const reason = sending.signal.aborted ? sending.signal.reason : failureOf(error);
      observer?.upstreamFailed(fingerprint, reason);
      throw reason;
    }
  }

  return async function sendOperation(req, res, sending) {
    const { operation, mask, upload } = sending;
    const timeoutMs = Math.max(responseTimeoutMs, operation.leastTimeoutMs ?? 0);
    const late = new AbortController();
    let deadline: NodeJS.Timeout | undefined;
    const startDeadline = () => {
      deadline = setTimeout(() => late.abort(new Problem('upstream_timeout', TIMED_OUT)), timeoutMs);
    };
    if (upload) upload.done.then(startDeadline, () => {});
    else startDeadline();
    const signal = AbortSignal.any([sending.signal, late.signal, ...(upload ? [upload.signal] : [])]);
    try {
      const answer = await observed(req, res, { ...sending, signal });
      const { givesFile } = operation;
      const verdict = await judgeOperation(answer, {
        maxBytes: maxAnswerBytesOf(operation),
        givesFile,
        mask,
      });
      // A service may answer before it has the whole form, which may be refused after that.
      if (!(verdict instanceof Problem)) await upload?.done;
      return verdict;
    } catch (error) {
      // If the signal cut off the answer, the error says that it broke: throw the signal's reason instead.
      signal.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(deadline);
      // A service that has answered early may still wait for the rest of the form.
      if (upload) late.abort();
    }
  };
}

function failureOf(error: unknown): Problem {
  const { code: cause = 'ECONNRESET' } = error as NodeJS.ErrnoException;
  return cause.startsWith('HPE_')
    ? new Problem('upstream_bad_response', 'The bot service did not answer in HTTP.', { cause })
    : noAnswer({ cause });
}

/** Problems after which the service has certainly done nothing. */
const NOT_DONE: ReadonlySet<ProblemCode> = new Set(['upstream_refused', 'upstream_rate_limited']);

/**
 * The error for an operation that was sent to the bot service and then failed with `error`. The service may have done it,
 * so that clients must not send it again, unless it was refused, or is safe to do twice.
 */
export function asOperationLost(operation: Operation, error: unknown): unknown {
  if (isSafeTwice(operation) || (error instanceof Problem && NOT_DONE.has(error.code))) return error;
  return asAnswerLost(error);
}

/** Whether it may be done twice. A second clear or delete may remove what was said in between. */
function isSafeTwice(operation: Operation): boolean {
  return operation.method === 'GET' || operation === SUSPEND;
}
