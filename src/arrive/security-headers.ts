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
  const headers = [['cache-control', 'no-store'], ...headersOf(protect)] as const;
  return function securityHeaders(_req, res, next) {
    for (const [name, value] of headers) res.setHeader(name, value);
    next();
  };
}

/** The headers that `middleware` sets, the same for every request: to ask it each time costs more than to set them. */
function headersOf(middleware: ReturnType<typeof helmet>): [name: string, value: string][] {
  const headers: [string, string][] = [];
  const req = new IncomingMessage(new Socket());
  const res = new ServerResponse(req);
  res.setHeader = (name, value) => {
    // Node.js looks headers up in lower case, and would change the name each time.
    headers.push([name.toLowerCase(), String(value)]);
    return res;
  };
  let isDone = false;
  middleware(req, res, (error) => {
    if (error) throw error;
    isDone = true;
  });
  if (!isDone) throw new Error('the headers are not set at once');
  return headers;
}
