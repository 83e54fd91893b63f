import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import type { Page } from './chat-page.ts';

/** Where `npm run build` puts the package, seen from this file or its source. */
const FILES = [
  new URL('../bot-relay-client.tgz', import.meta.url),
  new URL('../../dist/bot-relay-client.tgz', import.meta.url),
];

/**
 * The package of the client, from where npm installs it. It is read once. Empty if it is not built, since the relay can
 * run without it.
 */
export function clientPackage(): Page[] {
  const file = FILES.find((one) => existsSync(one));
  if (!file) return [];
  const body = readFileSync(file);
  const etag = `"${createHash('sha256').update(body).digest('base64url')}"`;
  return [
    {
      path: '/client/bot-relay-client.tgz',
      handler(req, res) {
        // Another version of the relay has another package at the same path.
        res.setHeader('Cache-Control', 'no-cache');
        res.setHeader('ETag', etag);
        if (req.fresh) {
          res.statusCode = 304;
          res.end();
          return;
        }
        res.setHeader('Content-Type', 'application/gzip');
        res.setHeader('Content-Length', body.length);
        res.end(body);
      },
    },
  ];
}
