import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';

/** Visible ASCII that may stand in a path or query; leaves out `\`, `#` and every control character. */
const ORIGIN_FORM = /^\/[\x21\x22\x24-\x5b\x5d-\x7e]*$/;

/**
 * Lets only origin-form request targets pass (RFC 9112 §3.2.1) that come with a Host (RFC 9112 §3.2), so that
 * what the router matches is what came: absolute-form, fragments and backslashes are refused.
 * @throws Problem `bad_request`
 */
export function requestTarget(): RequestHandler {
  return function requestTarget(req, _res, next) {
    if (!ORIGIN_FORM.test(req.url)) {
      throw new Problem('bad_request', 'The request target must be a plain path.');
    }
    if (req.headers.host === undefined && req.httpVersion !== '1.0') {
      throw new Problem('bad_request', 'The request has no Host header.');
    }
    next();
  };
}
