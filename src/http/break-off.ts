import type { ServerResponse } from 'node:http';

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
