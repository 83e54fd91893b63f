import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../errors.ts';

/**
 * Lets only requests without a body pass (RFC 9112 §6).
 * @throws Problem `body_too_large`
 */
export function refuseBody(headers: IncomingHttpHeaders): void {
  const { 'content-length': length = '0', 'transfer-encoding': encoding } = headers;
  if (encoding !== undefined || Number(length) !== 0) {
    throw new Problem('body_too_large', 'This path takes no body.');
  }
}
