import type { RequestHandler } from 'express';
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
    // The relay shares its host with other pages, and does not decide for their subdomains.
    strictTransportSecurity: https && { includeSubDomains: false },
    xFrameOptions: { action: 'deny' },
  });
  return function securityHeaders(req, res, next) {
    res.setHeader('Cache-Control', 'no-store');
    protect(req, res, next);
  };
}
