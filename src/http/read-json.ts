import type { IncomingMessage } from 'node:http';
import { Problem } from '../errors.ts';
import { requireMediaType } from './media-type.ts';
import { parseJson } from './parse-json.ts';
import { type BodyOptions, readBody } from './read-body.ts';

/** The bytes of a body, unchanged, and their value. */
export interface JsonBody {
  readonly bytes: Buffer;
  readonly value: unknown;
}

/**
 * Reads the whole body of JSON (RFC 8259) in UTF-8, at once if all of it is here.
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`, `invalid_json`; `CLIENT_LEFT`
 */
export function readJson(req: IncomingMessage, options: BodyOptions): JsonBody | Promise<JsonBody> {
  requireMediaType(req.headers, 'application/json');
  const bytes = readBody(req, options);
  return bytes instanceof Promise ? bytes.then(parsed) : parsed(bytes);
}

function parsed(bytes: Buffer): JsonBody {
  try {
    return { bytes, value: parseJson(bytes) };
  } catch {}
  throw new Problem('invalid_json', 'The body is not JSON in UTF-8.');
}
