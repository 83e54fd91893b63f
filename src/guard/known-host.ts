import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import { hostNameOf, isLoopbackName } from '../http/hosts.ts';

export interface KnownHosts {
  /** In the form of `hostNameOf`. */
  readonly names: readonly string[];
  /** Whether every loopback name is known besides. */
  readonly loopback: boolean;
  /** Paths that answer to any name: who asks there, asks an address. */
  readonly exceptPaths: readonly string[];
}

/**
 * Refuses requests for a host that is not ours (RFC 9110 §15.5.20): a page whose name was made to lead here (DNS
 * rebinding) is of the same origin, so that nothing else tells it from our own. `Host` alone counts, since a client can
 * say anything in `X-Forwarded-Host`. HTTP/1.0 needs none, and no browser speaks it.
 * @throws Problem `unknown_host`
 */
export function knownHost({ names, loopback, exceptPaths }: KnownHosts): RequestHandler {
  const known = new Set(names);
  const open = new Set(exceptPaths);
  const isKnown = (header: string) => {
    const name = hostNameOf(header);
    return name !== undefined && (known.has(name) || (loopback && isLoopbackName(name)));
  };
  return function knownHost(req, _res, next) {
    const { host } = req.headers;
    if (host !== undefined && !isKnown(host) && !open.has(req.path)) {
      throw new Problem(
        'unknown_host',
        'This relay does not answer to this host name. Its operator sets PUBLIC_URL to what browsers have in their address bar, or names the host in ALLOWED_HOSTS.',
      );
    }
    next();
  };
}
