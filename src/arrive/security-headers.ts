import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { RequestHandler } from 'express';
import helmet from 'helmet';

/**
 * Headers for an API that no browser should ever render, frame or cache.
 * `https` says whether the relay's public URL is https: only then HSTS is promised (RFC 6797 §7.2).
 */
export function securityHeaders({ https }: { https: boolean }): RequestHandler {
  const headers = headersOf(
    helmet({
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
    }),
  );
  return function securityHeaders(_req, res, next) {
    for (const [name, value] of headers) res.setHeader(name, value);
    next();
  };
}

/** The headers that `protect` sets. They are the same for every answer, and taken once, which costs less. */
function headersOf(protect: ReturnType<typeof helmet>): readonly [name: string, value: string][] {
  const headers: [name: string, value: string][] = [['Cache-Control', 'no-store']];
  class Noting extends ServerResponse {
    override setHeader(name: string, value: number | string | readonly string[]): this {
      headers.push([name, String(value)]);
      return this;
    }
  }
  const req = new IncomingMessage(new Socket());
  protect(req, new Noting(req), () => {});
  return headers;
}
