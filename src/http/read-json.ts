import type { IncomingMessage } from 'node:http';
import { Problem } from '../errors.ts';
import { type BodyOptions, readBody } from './body.ts';
import { parseJson } from './json.ts';
import { requireMediaType } from './media-type.ts';

/**
 * A larger body, in bytes, waits for a round of the event loop: small ones and open streams go on between two of them.
 */
const SMALL_BYTES = 16_384;
const nextTurn = turns();

/** The bytes of a body, unchanged, and their value. */
interface JsonBody {
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

/** Makes a function that resolves for one caller in each round of the event loop, in their order. */
export function turns(): () => Promise<void> {
  let last = Promise.resolve();
  return function nextTurn() {
    last = last.then(() => new Promise((resolve) => void setImmediate(resolve)));
    return last;
  };
}

/** How many levels the JSON of a client may have. */
const MAX_DEPTH = 64;
/** How many members and elements it may have in all. An empty object or array counts as one. */
const MAX_MEMBERS = 10_000;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Refuses JSON whose values would take long to build, in one scan of its bytes. No syntax is checked.
 * @throws Problem `body_too_large`
 */
function refuseManyMembers(json: Buffer): void {
  let depth = 0;
  let members = 0;
  let isText = false;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (isText) {
      if (byte === BACKSLASH) at += 1;
      else if (byte === QUOTE) isText = false;
    } else if (byte === QUOTE) isText = true;
    else if (byte === COMMA) members += 1;
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      depth += 1;
      members += 1;
      if (depth > MAX_DEPTH)
        throw new Problem('body_too_large', `The body has more than ${MAX_DEPTH} levels.`);
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth -= 1;
  }
  if (members > MAX_MEMBERS)
    throw new Problem('body_too_large', `The body has more than ${MAX_MEMBERS} members and elements.`);
}
