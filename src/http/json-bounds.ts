import { Problem } from '../errors.ts';

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
export function refuseManyMembers(json: Buffer): void {
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
