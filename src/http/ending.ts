import type { Response } from 'express';
import { PROBLEMS, type ProblemCode } from '../errors.ts';

/** The status of a request whose client left before the answer (nginx's convention). */
const CLIENT_CLOSED_STATUS = 499;

/** How a request ended: its HTTP status, and `ok`, `client_closed`, `client_stalled`, `not_ready` or a problem's code. */
export interface Ending {
  readonly status: number;
  readonly outcome: string;
}

/** How the request ended. A failure in a stream has status 200 and its code as the outcome. Call it only after `res` has closed. */
export function endingOf(res: Response): Ending {
  return {
    status: res.headersSent ? res.statusCode : CLIENT_CLOSED_STATUS,
    outcome: res.locals.outcome ?? (res.writableFinished ? 'ok' : 'client_closed'),
  };
}

/** The level of its log line, by the status of the outcome's code, if it has one: a stream that fails has status 200. */
export function levelOf({ status, outcome }: Ending): 'info' | 'warn' | 'error' {
  const statusOfOutcome = Object.hasOwn(PROBLEMS, outcome) ? PROBLEMS[outcome as ProblemCode].status : status;
  if (statusOfOutcome === 500) return 'error';
  return statusOfOutcome > 500 ? 'warn' : 'info';
}
