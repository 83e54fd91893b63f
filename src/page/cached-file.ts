import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
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
  /** The file as it is compressed, by its content coding. */
  readonly compressed?: { readonly br: Buffer; readonly gzip: Buffer };
  /** Whether its path belongs to this content alone, so that a cache never asks again. */
  readonly isImmutable?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The content codings, the smaller one first. */
const CODINGS = ['br', 'gzip'] as const;

/** A body as it is sent, with an ETag of its own (RFC 9110 §8.8.3.3). */
const tagged = (body: Buffer) => ({
  body,
  etag: `"${createHash('sha256').update(body).digest('base64url')}"`,
});

/**
 * Serves a file, compressed if the client takes that. Unless it is immutable, a cache asks for it each time, since another
 * version of the relay has another one at its path.
 */
export function cachedFile({ path, type, body, compressed, isImmutable, headers = {} }: CachedFile): Page {
  const plain = tagged(body);
  const coded = compressed && { br: tagged(compressed.br), gzip: tagged(compressed.gzip) };
  const caching = isImmutable ? 'public, max-age=31536000, immutable' : 'no-cache';
  return {
    path,
    handler(req, res) {
      const coding = coded && CODINGS.find((one) => req.acceptsEncodings(one));
      const sent = (coding && coded?.[coding]) ?? plain;
      res.setHeader('Cache-Control', caching);
      res.setHeader('ETag', sent.etag);
      if (coded) res.vary('Accept-Encoding');
      for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
      if (req.fresh) {
        res.statusCode = 304;
        res.end();
        return;
      }
      if (coding) res.setHeader('Content-Encoding', coding);
      res.setHeader('Content-Type', type);
      res.setHeader('Content-Length', sent.body.length);
      res.end(sent.body);
    },
  };
}

/** Where `npm run build` has made this file or folder: seen from this file, or from its source. */
function builtPlace(name: string): URL | undefined {
  const places = [new URL(`../${name}`, import.meta.url), new URL(`../../dist/${name}`, import.meta.url)];
  return places.find((one) => existsSync(one));
}

/** A file that `npm run build` has made in `dist/`; undefined if it has not. */
export function builtFile(name: string): Buffer | undefined {
  const found = builtPlace(name);
  return found && readFileSync(found);
}

/** The names of the files that `npm run build` has made in a folder of `dist/`. */
export function builtNames(folder: string): readonly string[] {
  const found = builtPlace(folder);
  return found ? readdirSync(found) : [];
}
