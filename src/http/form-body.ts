import type { RequestHandler } from 'express';
import { requireMediaType } from './media-type.ts';
import { type BodyOptions, readBody } from './read-body.ts';

/**
 * Reads the whole body of a form (`application/x-www-form-urlencoded`) into `res.locals.body`, as the bytes that came.
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`
 */
export function formBody(options: BodyOptions): RequestHandler {
  return async function formBody(req, res, next) {
    requireMediaType(req.headers, 'application/x-www-form-urlencoded');
    const body = await readBody(req, options);
    if (body === undefined) return;
    res.locals.body = body;
    next();
  };
}
