import type { Response } from 'express';

/** Stands for the status of a request whose client left before it had an answer (nginx's convention). */
const CLIENT_CLOSED_STATUS = 499;

/** How a request ended: its HTTP status, and `ok`, `client_closed`, `client_stalled`, `not_ready` or a problem's code. */
export interface Ending {
  readonly status: number;
  readonly outcome: string;
}

/** How the request ended; true once `res` has closed. */
export function endingOf(res: Response): Ending {
  return {
    status: res.headersSent ? res.statusCode : CLIENT_CLOSED_STATUS,
    outcome: res.locals.outcome ?? (res.writableFinished ? 'ok' : 'client_closed'),
  };
}
