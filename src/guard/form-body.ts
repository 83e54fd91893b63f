import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import { type BodyOptions, readBody } from './read-body.ts';

/**
 * Reads the whole body of a form (`application/x-www-form-urlencoded`) into `res.locals.body`, as the bytes that came.
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`
 */
export function formBody(options: BodyOptions): RequestHandler {
  return async function formBody(req, res, next) {
    const essence = req.headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase();
    if (essence !== 'application/x-www-form-urlencoded') {
      throw new Problem('unsupported_media_type', 'Send Content-Type: application/x-www-form-urlencoded.');
    }
    const encoding = req.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
    if (encoding !== 'identity') {
      throw new Problem('unsupported_media_type', 'Send the body without Content-Encoding.');
    }
    const body = await readBody(req, options);
    if (body === undefined) return;
    res.locals.body = body;
    next();
  };
}
