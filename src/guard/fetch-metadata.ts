import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../errors.ts';

/** The origins whose pages may call the relay: its own, and those on the list. */
interface TrustedOrigins {
  readonly own: string;
  readonly allowed: readonly string[];
}

/**
 * Makes the check that refuses state-changing requests from pages of other sites (CSRF). It uses `Sec-Fetch-Site`
 * (W3C Fetch Metadata §2.3), else `Origin` (RFC 6454 §7), so that clients need no token. A request with neither header
 * does not come from a browser. The check throws Problem `cross_site_request`.
 */
export function originCheck({ own, allowed }: TrustedOrigins): (headers: IncomingHttpHeaders) => void {
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

/** Uses of a file (`Sec-Fetch-Dest`, W3C Fetch Metadata §2.1) in which a browser neither runs nor applies it. */
const USES: ReadonlySet<unknown> = new Set([undefined, 'empty', 'document', 'image', 'audio', 'video']);

/** Refuses a file to a page that would run or apply it, as a script for example. @throws Problem `bad_request` */
export function checkFileUse(headers: IncomingHttpHeaders): void {
  if (!USES.has(headers['sec-fetch-dest']))
    throw new Problem(
      'bad_request',
      'A page can show or download this file, but not run, apply or frame it.',
    );
}
