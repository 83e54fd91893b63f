import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import { hostNameOf, isLoopbackName } from '../http/hosts.ts';

export interface KnownHosts {
  /** In the form of `hostNameOf`. */
  readonly names: readonly string[];
  /** Whether all loopback names are known, too. */
  readonly loopback: boolean;
  /** Paths that answer to any name: load balancers probe an instance by its address. */
  readonly exceptPaths: readonly string[];
}

/**
 * Refuses requests for a host name that is not the relay's (RFC 9110 §15.5.20). With DNS rebinding, a foreign page has
 * a name that resolves to the relay, and its requests are of the same origin: only the name tells them apart. Only
 * `Host` counts, since clients can set `X-Forwarded-Host`. HTTP/1.0 may have no `Host`, and browsers do not use it.
 * @throws Problem `unknown_host`
 */
export function knownHost({ names, loopback, exceptPaths }: KnownHosts): RequestHandler {
  const known = new Set(names);
  const exempt = new Set(exceptPaths);
  const isKnown = (header: string) => {
    // A fast path: most browsers send it like this, when the relay has the usual port.
    if (known.has(header)) return true;
    const name = hostNameOf(header);
    return name !== undefined && (known.has(name) || (loopback && isLoopbackName(name)));
  };
  return function knownHost(req, _res, next) {
    const { host } = req.headers;
    if (host !== undefined && !isKnown(host) && !exempt.has(req.path)) {
      throw new Problem(
        'unknown_host',
        'This relay does not serve this host name. Its operator must set PUBLIC_URL to the address that browsers show, or list the host in ALLOWED_HOSTS.',
      );
    }
    next();
  };
}
