import type { Request, RequestHandler, Response } from 'express';
import helmet from 'helmet';

/**
 * Headers for an API that no browser should ever render, frame or cache.
 * `https` says whether the relay's public URL is https: only then HSTS is promised (RFC 6797 §7.2).
 */
export function securityHeaders({ https }: { https: boolean }): RequestHandler {
  const protect = helmet({
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        frameAncestors: ["'none'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
      },
    },
    // The relay shares the page's host: what goes for its subdomains is not the relay's to say.
    strictTransportSecurity: https && { includeSubDomains: false },
    xFrameOptions: { action: 'deny' },
  });
  const headers = headersOf(protect).set('Cache-Control', 'no-store');
  return function securityHeaders(_req, res, next) {
    res.setHeaders(headers);
    next();
  };
}

/** What `middleware` sets on every answer alike: it is asked once, and not for each request. */
function headersOf(
  middleware: (...args: Parameters<ReturnType<typeof helmet>>) => void,
): Map<string, string> {
  const headers = new Map<string, string>();
  const answer = {
    setHeader: (name: string, value: string) => headers.set(name, value),
    removeHeader: (name: string) => headers.delete(name),
  };
  middleware({} as Request, answer as unknown as Response, (error) => {
    if (error) throw error;
  });
  return headers;
}
