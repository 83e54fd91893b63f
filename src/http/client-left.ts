import type { ServerResponse } from 'node:http';

/** Why work for a request is given up whose client has left: nobody is there to answer. */
export const CLIENT_LEFT = Symbol('client left');

/** A controller that is aborted with `CLIENT_LEFT` when the connection of `res` closes, which may have been before. */
export function abortWhenLeft(res: ServerResponse): AbortController {
  const controller = new AbortController();
  const abort = () => controller.abort(CLIENT_LEFT);
  if (res.closed) abort();
  else res.once('close', abort);
  return controller;
}
