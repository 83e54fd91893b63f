import type { ServerResponse } from 'node:http';

/** The reason with which work for a request is aborted when its client has left. */
export const CLIENT_LEFT = Symbol('client left');

/** A controller that is aborted with `CLIENT_LEFT` when `res` closes; at once if it has closed already. */
export function abortWhenLeft(res: ServerResponse): AbortController {
  const controller = new AbortController();
  const abort = () => controller.abort(CLIENT_LEFT);
  if (res.closed) abort();
  else res.once('close', abort);
  return controller;
}
