import type { IncomingHttpHeaders } from 'node:http';
import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';

/** The origins whose pages may call: the relay's own, and the ones on the list. */
export interface TrustedOrigins {
  readonly own: string;
  readonly allowed: readonly string[];
}

/**
 * Refuses state-changing requests that another site's page caused, with no work for the client: by
 * `Sec-Fetch-Site` (W3C Fetch Metadata §2.3), else by `Origin` (RFC 6454 §7). A request with neither header
 * comes from no browser, so nobody's cookie was abused for it.
 * @throws Problem `cross_site_request`
 */
export function sameOrigin({ own, allowed }: TrustedOrigins): RequestHandler {
  const trusted = new Set([own, ...allowed]);
  return function sameOrigin(req, _res, next) {
    if (!isTrusted(req.headers, trusted)) {
      throw new Problem('cross_site_request', 'A page of another origin sent this request.');
    }
    next();
  };
}

function isTrusted(headers: IncomingHttpHeaders, trusted: ReadonlySet<string>): boolean {
  const site = headers['sec-fetch-site'];
  if (site === 'same-origin' || site === 'none') return true;
  if (headers.origin !== undefined) return trusted.has(headers.origin);
  return site === undefined;
}
