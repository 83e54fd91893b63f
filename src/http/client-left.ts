import type { ServerResponse } from 'node:http';

/** The reason with which work for a request is aborted when its client has left. */
export const CLIENT_LEFT = Symbol('client left');

/**
 * A controller that is aborted with `CLIENT_LEFT` when `res` closes before the client has all of it; at once if it has
 * closed already. An abort at the end of every answer would cost an event for nothing.
 */
export function abortWhenLeft(res: ServerResponse): AbortController {
  const controller = new AbortController();
  const abort = () => res.writableFinished || controller.abort(CLIENT_LEFT);
  if (res.closed) abort();
  else res.on('close', abort);
  return controller;
}
