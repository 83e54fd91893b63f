import type { IncomingMessage, ServerResponse } from 'node:http';
import { Problem } from '../../errors.ts';
import { judgeOperation, type OperationAnswer } from './judge-operation.ts';
import { type Attempt, operationProxy } from './operation-proxy.ts';

export interface SendOperationOptions {
  readonly baseUrl: Readonly<URL>;
  /** From the sending to the end of the answer, in ms. */
  readonly responseTimeoutMs: number;
  readonly observer?: UpstreamObserver | undefined;
}

/** Told how the bot service has taken each request. */
export interface UpstreamObserver {
  upstreamAnswered(keyFingerprint: string, status: number): void;
  /** `reason` is the Problem, or why the request was given up. */
  upstreamFailed(keyFingerprint: string, reason: unknown): void;
}

/** One sending of an operation, and what to make of its answer. */
export interface OperationAttempt extends Attempt {
  /** Hides secrets in what the bot service says. */
  readonly mask: (text: string) => string;
  /** Told of the status of the bot service as soon as it is there. */
  readonly onStatus: (status: number) => void;
}

/**
 * Sends an operation with one key, once. The answer is what goes down to the client, or `key_refused`. Rejects with
 * the signal's reason where that aborts first.
 * @throws Problem `upstream_unreachable`, `upstream_bad_response`, `upstream_rate_limited` or `upstream_timeout`
 */
export type SendOperation = (
  req: IncomingMessage,
  res: ServerResponse,
  attempt: OperationAttempt,
) => Promise<OperationAnswer | 'key_refused'>;

const LATE = 'The bot service did not answer in time.';

export function operationSender(options: SendOperationOptions): SendOperation {
  const { baseUrl, responseTimeoutMs, observer } = options;
  const proxy = operationProxy(baseUrl);

  async function observed(req: IncomingMessage, res: ServerResponse, attempt: OperationAttempt) {
    const { fingerprint } = attempt.key;
    try {
      const answer = await proxy(req, res, attempt);
      const { statusCode: status = 0 } = answer;
      attempt.onStatus(status);
      observer?.upstreamAnswered(fingerprint, status);
      return answer;
    } catch (error) {
      const reason = attempt.signal.aborted ? attempt.signal.reason : failureOf(error);
      observer?.upstreamFailed(fingerprint, reason);
      throw reason;
    }
  }

  return async function sendOperation(req, res, attempt) {
    const late = new AbortController();
    const deadline = setTimeout(() => late.abort(new Problem('upstream_timeout', LATE)), responseTimeoutMs);
    const signal = AbortSignal.any([attempt.signal, late.signal]);
    try {
      return await judgeOperation(await observed(req, res, { ...attempt, signal }), attempt.mask);
    } catch (error) {
      // An answer that was cut off by the signal reads as one that broke.
      signal.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(deadline);
    }
  };
}

function failureOf(error: unknown): Problem {
  const { code: cause = 'ECONNRESET' } = error as NodeJS.ErrnoException;
  return cause.startsWith('HPE_')
    ? new Problem('upstream_bad_response', 'The bot service did not answer in HTTP.', { cause })
    : new Problem('upstream_unreachable', 'The bot service did not answer.', { cause });
}
