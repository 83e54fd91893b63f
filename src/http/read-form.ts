import type { IncomingMessage } from 'node:http';
import { requireMediaType } from './media-type.ts';
import { type BodyOptions, readBody } from './read-body.ts';

/**
 * Reads the whole body of a form (`application/x-www-form-urlencoded`).
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`; `CLIENT_LEFT`
 */
export async function readForm(req: IncomingMessage, options: BodyOptions): Promise<URLSearchParams> {
  requireMediaType(req.headers, 'application/x-www-form-urlencoded');
  const body = await readBody(req, options);
  return new URLSearchParams(body.toString('latin1'));
}
