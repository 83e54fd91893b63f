import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import type { Request, Response } from 'express';

/** One path below the base path, and its handler of `GET`. */
export interface Page {
  readonly path: string;
  readonly handler: (req: Request, res: Response) => void;
}

/** A file, and the headers that it is served with. */
export interface CachedFile {
  readonly path: string;
  readonly type: string;
  readonly body: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Serves a file that a cache asks for each time, since another version of the relay has another one at its path. */
export function cachedFile({ path, type, body, headers = {} }: CachedFile): Page {
  const etag = `"${createHash('sha256').update(body).digest('base64url')}"`;
  return {
    path,
    handler(req, res) {
      res.setHeader('Cache-Control', 'no-cache');
      res.setHeader('ETag', etag);
      for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
      if (req.fresh) {
        res.statusCode = 304;
        res.end();
        return;
      }
      res.setHeader('Content-Type', type);
      res.setHeader('Content-Length', body.length);
      res.end(body);
    },
  };
}

/** A file that `npm run build` has made in `dist/`; undefined if it has not. */
export function builtFile(name: string): Buffer | undefined {
  // Seen from this file, or from its source.
  const places = [new URL(`../${name}`, import.meta.url), new URL(`../../dist/${name}`, import.meta.url)];
  const found = places.find((one) => existsSync(one));
  return found && readFileSync(found);
}
