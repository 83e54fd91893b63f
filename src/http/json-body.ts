import { isUtf8 } from 'node:buffer';
import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import { requireMediaType } from './media-type.ts';
import { type BodyOptions, readBody } from './read-body.ts';

/**
 * Reads the whole body into `res.locals.body`, as the bytes that came, once they are known to be JSON
 * (RFC 8259) in UTF-8.
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`, `invalid_json`
 */
export function jsonBody(options: BodyOptions): RequestHandler {
  return async function jsonBody(req, res, next) {
    requireMediaType(req.headers, 'application/json');
    const body = await readBody(req, options);
    // The client left before its body was whole: there is nobody to answer.
    if (body === undefined) return;
    if (!isJson(body)) throw new Problem('invalid_json', 'The body is not JSON in UTF-8.');
    res.locals.body = body;
    next();
  };
}

function isJson(body: Buffer): boolean {
  if (!isUtf8(body)) return false;
  try {
    JSON.parse(body.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}
