import type { RequestHandler } from 'express';

const MAX_AGE_SECONDS = '600';
/** What pages may send. The last three are sent by client libraries of the bot service; the relay uses the last one alone. */
const REQUEST_HEADERS = [
  ...['Content-Type', 'Last-Event-ID', 'Range', 'Traceparent', 'X-Request-Id'],
  ...['X-API-KEY', 'X-ASGARD-USER-IDENTITY-HINT', 'Idempotency-Key'],
];
const RESPONSE_HEADERS = [
  ...['Content-Disposition', 'Content-Range', 'RateLimit', 'RateLimit-Policy', 'Retry-After'],
  ...['X-Request-Id', 'X-Total-Bytes', 'X-Trace-Id', 'X-Truncated'],
].join(', ');

export interface CorsOptions {
  readonly origins: readonly string[];
  readonly methods: readonly string[];
  /** The headers that pages may send besides. The relay does not use them. */
  readonly headers: readonly string[];
}

/**
 * Lets pages of the allowed origins read answers with credentials, and answers their preflights (WHATWG
 * Fetch §3.3). An origin that is not on the list gets no `Access-Control-*` header at all.
 */
export function cors({ methods, headers, ...allowed }: CorsOptions): RequestHandler {
  const origins = new Set(allowed.origins);
  const requestHeaders = [...REQUEST_HEADERS, ...headers].join(', ');
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
    res.setHeader('Access-Control-Allow-Methods', methods.join(', '));
    res.setHeader('Access-Control-Allow-Headers', requestHeaders);
    res.setHeader('Access-Control-Max-Age', MAX_AGE_SECONDS);
    res.status(204).end();
  };
}
