import { isUtf8 } from 'node:buffer';

/** The value of JSON in UTF-8 (RFC 8259 §8.1). @throws SyntaxError if the bytes are something else */
export function parseJson(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new SyntaxError('no UTF-8');
  return JSON.parse(bytes.toString('utf8'));
}

/** Whether the bytes are JSON in UTF-8. */
export function isJson(bytes: Buffer): boolean {
  try {
    parseJson(bytes);
    return true;
  } catch {
    return false;
  }
}

/** A member of a JSON object, and where the bytes of its value begin and end. */
export interface JsonMember {
  /** Without escape sequences. */
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const OPENING: ReadonlySet<number | undefined> = new Set([0x5b, OPEN_BRACE]);
const CLOSING: ReadonlySet<number | undefined> = new Set([0x5d, 0x7d]);
/** What ends a number, `true`, `false` or `null` (RFC 8259 §2). */
const AFTER_LITERAL: ReadonlySet<number | undefined> = new Set([0x09, 0x0a, 0x0d, 0x20, COMMA, 0x5d, 0x7d]);

/**
 * The top-level members of the JSON object in `json`, in their order and with those that are repeated; none if it is
 * another JSON value. It stops after `most` members. `json` must have been parsed before: no syntax is checked here.
 */
export function jsonMembers(json: Buffer, most = Number.POSITIVE_INFINITY): readonly JsonMember[] {
  const members: JsonMember[] = [];
  let at = afterSpace(json, 0);
  if (json[at] !== OPEN_BRACE) return members;
  do {
    at = afterSpace(json, at + 1);
    if (json[at] !== QUOTE) break;
    const nameEnd = endOfString(json, at);
    const colon = afterSpace(json, nameEnd);
    const from = afterSpace(json, colon + 1);
    const to = endOfValue(json, from);
    members.push({ name: nameIn(json.toString('utf8', at + 1, nameEnd - 1)), from, to });
    at = afterSpace(json, to);
  } while (json[at] === COMMA && members.length < most);
  return members;
}

/** The name that stands between these quotes. */
function nameIn(quoted: string): string {
  return quoted.includes('\\') ? (JSON.parse(`"${quoted}"`) as string) : quoted;
}

/** Whether the JSON value in `json` is an object. */
export function isJsonObject(json: Buffer): boolean {
  return json[afterSpace(json, 0)] === OPEN_BRACE;
}

function afterSpace(json: Buffer, from: number): number {
  let at = from;
  while (json[at] === 0x20 || json[at] === 0x0a || json[at] === 0x0d || json[at] === 0x09) at += 1;
  return at;
}

/** Where the JSON string that begins at `from` ends: behind the first quote that no backslash escapes. */
function endOfString(json: Buffer, from: number): number {
  for (let at = from + 1; ; ) {
    const quote = json.indexOf(QUOTE, at);
    let backslashes = 0;
    while (json[quote - 1 - backslashes] === BACKSLASH) backslashes += 1;
    at = quote + 1;
    if (backslashes % 2 === 0) return at;
  }
}

function endOfValue(json: Buffer, from: number): number {
  if (json[from] === QUOTE) return endOfString(json, from);
  return OPENING.has(json[from]) ? endOfContainer(json, from) : endOfLiteral(json, from);
}

function endOfLiteral(json: Buffer, from: number): number {
  let at = from;
  while (at < json.length && !AFTER_LITERAL.has(json[at])) at += 1;
  return at;
}

function endOfContainer(json: Buffer, from: number): number {
  let depth = 0;
  for (let at = from; ; ) {
    const byte = json[at];
    if (byte === QUOTE) {
      at = endOfString(json, at);
      continue;
    }
    if (OPENING.has(byte)) depth += 1;
    else if (CLOSING.has(byte)) depth -= 1;
    at += 1;
    if (depth === 0) return at;
  }
}

/**
 * Replaces strings in `json`, also the names of members: `replace` gets each one without escape sequences. Every other
 * byte stays; the same buffer is returned if nothing changes. `json` must have been parsed before: no syntax is checked
 * here.
 */
export function replaceStrings(json: Buffer, replace: (text: string) => string): Buffer {
  const pieces: Buffer[] = [];
  let from = 0;
  for (let at = json.indexOf(QUOTE), end = 0; at >= 0; at = json.indexOf(QUOTE, end)) {
    end = endOfString(json, at);
    const text = JSON.parse(json.toString('utf8', at, end)) as string;
    const replaced = replace(text);
    if (replaced === text) continue;
    pieces.push(json.subarray(from, at), Buffer.from(JSON.stringify(replaced)));
    from = end;
  }
  return pieces.length > 0 ? Buffer.concat([...pieces, json.subarray(from)]) : json;
}
