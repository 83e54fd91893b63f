import type { IncomingMessage } from 'node:http';
import { Problem } from '../errors.ts';
import { refuseManyMembers } from './json-bounds.ts';
import { requireMediaType } from './media-type.ts';
import { parseJson } from './parse-json.ts';
import { type BodyOptions, readBody } from './read-body.ts';
import { turns } from './turns.ts';

/** A larger body waits for its turn: small ones, and open streams, go on between two of them. */
const SMALL_BYTES = 16_384;
const nextTurn = turns();

/** The bytes of a body, unchanged, and their value. */
export interface JsonBody {
  readonly bytes: Buffer;
  readonly value: unknown;
}

/**
 * Reads the whole body of JSON (RFC 8259) in UTF-8, of at most 64 levels and 10,000 members and elements.
 * @throws Problem `unsupported_media_type`, `invalid_json`, and those of `readBody`; `CLIENT_LEFT`
 */
export async function readJson(req: IncomingMessage, options: BodyOptions): Promise<JsonBody> {
  requireMediaType(req.headers, 'application/json');
  const bytes = await readBody(req, options);
  if (bytes.length > SMALL_BYTES) await nextTurn();
  refuseManyMembers(bytes);
  try {
    return { bytes, value: parseJson(bytes) };
  } catch {
    throw new Problem('invalid_json', 'The body is not JSON in UTF-8.');
  }
}
