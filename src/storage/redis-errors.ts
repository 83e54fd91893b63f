import { isNativeError } from 'node:util/types';
import {
  ClientClosedError,
  ClientOfflineError,
  ConnectionTimeoutError,
  ErrorReply,
  SocketClosedUnexpectedlyError,
  SocketTimeoutError,
} from '@redis/client';
import { Problem } from '../errors.ts';

/** How long a command may take, in ms. The client's own timeout only covers the time until the command is written. */
export const COMMAND_TIMEOUT_MS = 500;

/** An error with a code, which `causeOf` returns. */
export function errorWith(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

/** The error of a command whose answer has not come in time. */
export const TIMEOUT = errorWith('TIMEOUT', 'Redis took too long');

/** What `work` resolves with; rejects if it takes longer than `ms`, by default than a command may. */
export async function withDeadline<T>(work: Promise<T>, ms = COMMAND_TIMEOUT_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    // In two halves: after a pause of the whole machine in the first one, Redis has the second to answer.
    timer = setTimeout(() => {
      // An answer that has come while this process was busy is read before `setImmediate` calls back.
      timer = setTimeout(() => setImmediate(reject, TIMEOUT), ms / 2);
    }, ms / 2);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The problem of a command that Redis has not carried out. */
export function unavailable(cause: string): Problem {
  return new Problem('session_store_unavailable', 'Sessions are not available right now; try again.', {
    retryAfter: 1,
    cause,
  });
}

/** Whether a command failed because there was no connection: then the reason for that is its cause. */
export function isOffline(error: unknown): boolean {
  return error instanceof ClientOfflineError || error instanceof ClientClosedError;
}

/** Whether an error is of the command alone, and the link is well: Redis has answered, or is slow. */
export function isOfCommand(error: unknown): boolean {
  return error instanceof ErrorReply || error === TIMEOUT;
}

/** The cause of an error in one word: the system's code, the first word of Redis's error, or the error's class. */
export function causeOf(error: unknown): string {
  if (!isNativeError(error)) return 'unknown';
  if (error instanceof SocketTimeoutError || error instanceof ConnectionTimeoutError) return 'TIMEOUT';
  if (error instanceof SocketClosedUnexpectedlyError || isOffline(error)) return 'CLOSED';
  const { code, message } = error as NodeJS.ErrnoException;
  // The client's own errors all have the name `Error`.
  return code ?? /^[A-Z]{2,}\b/.exec(message)?.[0] ?? error.constructor.name;
}
