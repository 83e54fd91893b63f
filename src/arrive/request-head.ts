import { randomUUID } from 'node:crypto';
import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';

const WELL_FORMED = /^[A-Za-z0-9._-]{8,128}$/;

/** The caller's `X-Request-Id` if it consists of 8 to 128 letters, digits, `.`, `_` or `-`; else a new UUID. */
export function requestIdFrom(header: string | string[] | undefined): string {
  return typeof header === 'string' && WELL_FORMED.test(header) ? header : randomUUID();
}

/** Gives every request an id, in `res.locals.requestId` and as `X-Request-Id` on the answer. */
export function requestId(): RequestHandler {
  return function requestId(req, res, next) {
    const id = requestIdFrom(req.headers['x-request-id']);
    res.locals.requestId = id;
    res.setHeader('X-Request-Id', id);
    next();
  };
}

/** Visible ASCII that may stand in a path or query; leaves out `\`, `#` and every control character. */
const ORIGIN_FORM = /^\/[\x21\x22\x24-\x5b\x5d-\x7e]*$/;

/**
 * Lets only requests of HTTP/1.1 and 1.0 pass (Node's parser takes 0.9 and 2.0 as well) whose target is in origin form
 * (RFC 9112 §3.2.1) and that have one Host (RFC 9112 §3.2; HTTP/1.0 may have none). So the router and every proxy before
 * the relay read the same path and the same host.
 * @throws Problem `bad_request`
 */
export function requestTarget(): RequestHandler {
  return function requestTarget({ url, httpVersion, rawHeaders }, _res, next) {
    if (httpVersion !== '1.1' && httpVersion !== '1.0') {
      throw new Problem('bad_request', 'The relay speaks HTTP/1.1.');
    }
    if (!ORIGIN_FORM.test(url)) {
      throw new Problem('bad_request', 'The request target must be a plain path.');
    }
    const hosts = countHosts(rawHeaders);
    if (hosts > 1) throw new Problem('bad_request', 'The request has more than one Host header.');
    if (hosts === 0 && httpVersion === '1.1') {
      throw new Problem('bad_request', 'The request has no Host header.');
    }
    next();
  };
}

/** The number of Host headers; `headers.host` is only the first of them. */
function countHosts(rawHeaders: readonly string[]): number {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at];
    if (name?.length === 4 && name.toLowerCase() === 'host') hosts += 1;
  }
  return hosts;
}
