import type { RequestHandler } from 'express';

const MAX_AGE_SECONDS = '600';
const REQUEST_HEADERS = 'Content-Type, Last-Event-ID, Traceparent, X-Request-Id';
const RESPONSE_HEADERS = 'RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Trace-Id';

/**
 * Lets pages of the `allowed` origins read answers with credentials, and answers their preflights (WHATWG
 * Fetch §3.3). An origin that is not on the list gets no `Access-Control-*` header at all.
 */
export function cors(allowed: readonly string[]): RequestHandler {
  const origins = new Set(allowed);
  return function cors(req, res, next) {
    if (origins.size > 0) res.vary('Origin');
    const { origin } = req.headers;
    if (origin === undefined || !origins.has(origin)) return next();
    res.setHeader('Access-Control-Allow-Origin', origin);
    res.setHeader('Access-Control-Allow-Credentials', 'true');
    if (req.method !== 'OPTIONS' || req.headers['access-control-request-method'] === undefined) {
      res.setHeader('Access-Control-Expose-Headers', RESPONSE_HEADERS);
      return next();
    }
    res.setHeader('Access-Control-Allow-Methods', 'GET, POST');
    res.setHeader('Access-Control-Allow-Headers', REQUEST_HEADERS);
    res.setHeader('Access-Control-Max-Age', MAX_AGE_SECONDS);
    res.status(204).end();
  };
}
