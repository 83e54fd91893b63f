import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
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
  const headers = [['Cache-Control', 'no-store'] as const, ...headersOf(protect)];
  return function securityHeaders(_req, res, next) {
    for (const [name, value] of headers) res.setHeader(name, value);
    next();
  };
}

/** The headers that helmet sets. They are the same for every request, so that it is asked only once. */
function headersOf(protect: ReturnType<typeof helmet>): readonly (readonly [string, string])[] {
  const headers: [string, string][] = [];
  const sample = new ServerResponse(new IncomingMessage(new Socket()));
  sample.setHeader = (name, value) => {
    headers.push([name, String(value)]);
    return sample;
  };
  protect(sample.req, sample, (error) => {
    if (error) throw error;
  });
  return headers;
}
