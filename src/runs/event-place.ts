import type { RunLog } from './run-log.ts';

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const COLON = 0x3a;
const I = 0x69;
const D = 0x64;
const BOM = Buffer.from('\ufeff');

/** How many bytes are searched one by one before `lastIndexOf` is called: a call costs as much as these. */
const NEAR_BYTES = 256;
/** How many bytes of an id are searched for: a search for so few is fast in any text. */
const SEARCHED_BYTES = 16;

/**
 * The offset after the last event with this id, each character of which is one byte; undefined if the log does not
 * have it (WHATWG HTML §9.2.6). `id` must not be empty. It searches the log from its end, so that nothing has to be
 * stored for each event; whatever the log holds, it reads each byte a few times at most.
 */
export function eventPlace(log: Pick<RunLog, 'start' | 'read'>, id: string): number | undefined {
  const { start } = log;
  const bytes = bytesOf(log);
  const first = firstLine(bytes, start);
  const wanted = Buffer.from(id, 'latin1');
  const searched = wanted.subarray(0, SEARCHED_BYTES);
  for (let at = bytes.length; ; ) {
    at = placeBefore(bytes, at, searched);
    if (at <= first) return undefined;
    if (!isValue(bytes, at, first) || !isLine(bytes, at, wanted)) continue;
    const end = eventEnd(bytes, at + wanted.length);
    if (end !== undefined) return start + end;
  }
}

/** Where `searched` may begin, before `end`; -1 if nowhere. */
function placeBefore(bytes: Buffer, end: number, searched: Buffer): number {
  const near = Math.max(0, end - NEAR_BYTES);
  const byte = searched[0];
  for (let at = end - 1; at >= near; at -= 1) {
    if (bytes[at] === byte && (bytes[at - 1] === COLON || bytes[at - 1] === SPACE)) return at;
  }
  return near === 0 ? -1 : bytes.lastIndexOf(searched, near - 1);
}

/** Whether the value of an id begins at `at`. */
function isValue(bytes: Buffer, at: number, first: number): boolean {
  // One space does not belong to the value.
  const colon = bytes[at - 1] === SPACE ? at - 2 : at - 1;
  if (colon === at - 1 && bytes[at] === SPACE) return false;
  const from = colon - 2;
  if (bytes[colon] !== COLON || bytes[colon - 1] !== D || bytes[from] !== I) return false;
  return from === first || (from > first && isLineEnd(bytes[from - 1]));
}

/** Whether from `at` on the line is `wanted`. */
function isLine(bytes: Buffer, at: number, wanted: Buffer): boolean {
  for (let n = 0; n < wanted.length; n += 1) if (bytes[at + n] !== wanted[n]) return false;
  return isLineEnd(bytes[at + wanted.length]);
}

/** Where the event ends of whose id the line ends at `at`; undefined if it has a later id, or no end. */
function eventEnd(bytes: Buffer, at: number): number | undefined {
  const { length } = bytes;
  for (let from = nextLine(bytes, at); from < length; ) {
    if (isLineEnd(bytes[from])) {
      const end = nextLine(bytes, from);
      // An LF that belongs to this CR may follow.
      return end === length && bytes[from] === CR && end === from + 1 ? undefined : end;
    }
    if (isId(bytes, from)) return undefined;
    let to = from;
    while (to < length && !isLineEnd(bytes[to])) to += 1;
    from = nextLine(bytes, to);
  }
  return undefined;
}

/** Where the line begins after the line end at `at`. */
function nextLine(bytes: Buffer, at: number): number {
  return bytes[at] === CR && bytes[at + 1] === LF ? at + 2 : at + 1;
}

/** Whether the line that begins at `from` is a field with the name `id`. */
function isId(bytes: Buffer, from: number): boolean {
  if (bytes[from] !== I || bytes[from + 1] !== D) return false;
  return bytes[from + 2] === COLON || isLineEnd(bytes[from + 2]);
}

function isLineEnd(byte: number | undefined): boolean {
  return byte === LF || byte === CR;
}

function bytesOf(log: Pick<RunLog, 'start' | 'read'>): Buffer {
  const parts: Buffer[] = [];
  let at = log.start;
  for (let part = log.read(at); part; part = log.read(at)) {
    parts.push(part.bytes);
    at += part.bytes.length;
  }
  const [only] = parts;
  return only && parts.length === 1 ? only : Buffer.concat(parts);
}

/** Where the first whole line begins. */
function firstLine(bytes: Buffer, start: number): number {
  if (start === 0) return BOM.every((byte, at) => bytes[at] === byte) ? BOM.length : 0;
  let at = 0;
  while (at < bytes.length && !isLineEnd(bytes[at])) at += 1;
  return Math.min(at + 1, bytes.length);
}
