import type { IncomingMessage } from 'node:http';
import { Problem } from '../errors.ts';
import { requireMediaType } from './media-type.ts';
import { parseJson } from './parse-json.ts';
import { type BodyOptions, readBody } from './read-body.ts';

/**
 * Reads the whole body of JSON (RFC 8259) in UTF-8. Returns its bytes unchanged, and the parsed value.
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`, `invalid_json`; `CLIENT_LEFT`
 */
export async function readJson(
  req: IncomingMessage,
  options: BodyOptions,
): Promise<{ readonly bytes: Buffer; readonly value: unknown }> {
  requireMediaType(req.headers, 'application/json');
  const bytes = await readBody(req, options);
  return { bytes, value: parse(bytes) };
}

function parse(bytes: Buffer): unknown {
  try {
    return parseJson(bytes);
  } catch {}
  throw new Problem('invalid_json', 'The body is not JSON in UTF-8.');
}
