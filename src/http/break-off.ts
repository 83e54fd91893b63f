import type { ServerResponse } from 'node:http';

/**
 * Closes the connection of an answer that is not complete, so that it does not look complete. In HTTP/1.0 the end of
 * the connection ends the body (RFC 1945 §7.2.2): there, only a reset shows that the body broke off.
 */
export function breakOff(res: ServerResponse): void {
  if (res.req.httpVersion === '1.0') res.socket?.resetAndDestroy();
  res.destroy();
}
