import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../errors.ts';

/** The origins whose pages may call the relay: its own, and those on the list. */
export interface TrustedOrigins {
  readonly own: string;
  readonly allowed: readonly string[];
}

/**
 * Makes the check that refuses state-changing requests from pages of other sites (CSRF). It uses `Sec-Fetch-Site`
 * (W3C Fetch Metadata §2.3), else `Origin` (RFC 6454 §7), so that clients need no token. A request with neither header
 * does not come from a browser. The check throws Problem `cross_site_request`.
 */
export function sameOrigin({ own, allowed }: TrustedOrigins): (headers: IncomingHttpHeaders) => void {
  const trusted = new Set([own, ...allowed]);
  return function checkOrigin(headers) {
    if (isTrusted(headers, trusted)) return;
    throw new Problem('cross_site_request', 'A page of another origin sent this request.');
  };
}

function isTrusted(headers: IncomingHttpHeaders, trusted: ReadonlySet<string>): boolean {
  const site = headers['sec-fetch-site'];
  if (site === 'same-origin' || site === 'none') return true;
  if (headers.origin !== undefined) return trusted.has(headers.origin);
  return site === undefined;
}
