import type { ServerResponse } from 'node:http';

/** The reason with which work for a request is aborted when its client has left. */
export const CLIENT_LEFT = Symbol('client left');

/**
 * A controller that is aborted with `CLIENT_LEFT` when `res` closes before the client has all of it; at once if it has
 * closed already. It is not aborted after a complete answer, which would cost an event.
 */
export function abortWhenLeft(res: ServerResponse): AbortController {
  const controller = new AbortController();
  const abort = () => res.writableFinished || controller.abort(CLIENT_LEFT);
  if (res.closed) abort();
  else res.on('close', abort);
  return controller;
}

/**
 * Closes the connection of an answer that is not complete, so that it does not look complete. Data that waits is
 * dropped.
 */
export function breakOff(res: ServerResponse): void {
  if (needsReset(res)) res.socket?.resetAndDestroy();
  res.destroy();
}

/** As `breakOff`, after all earlier data was sent. */
export function breakOffAfterData(res: ServerResponse): void {
  const { socket } = res;
  if (needsReset(res)) socket?.write('', () => socket.resetAndDestroy());
  else socket?.destroySoon();
}

/** In HTTP/1.0 the end of the connection ends the body (RFC 1945 §7.2.2): only a reset shows that the body broke off. */
function needsReset({ req }: ServerResponse): boolean {
  return req.httpVersion === '1.0';
}
