export const LF = 0x0a;
export const CR = 0x0d;
export const COLON = 0x3a;

/** Finds the line ends of `bytes` from the start to the end; a new one for the same bytes starts with `lineEnds`. */
export interface LineEnds {
  readonly bytes: Buffer;
  /** The next LF and CR that were found, so that a search for one that is far away is not repeated. */
  lf: number;
  cr: number;
}

/** Begins the search in `bytes`. */
export function lineEnds(bytes: Buffer): LineEnds {
  return { bytes, lf: -1, cr: -1 };
}

/** Returns where the line that contains `at` ends: the offset of its LF or CR; -1 if `bytes` do not have it. */
export function nextLineEnd(ends: LineEnds, at: number): number {
  const { bytes } = ends;
  if (ends.lf < at) ends.lf = find(bytes, LF, at);
  if (ends.cr < at) ends.cr = find(bytes, CR, at);
  const end = Math.min(ends.lf, ends.cr);
  return end < bytes.length ? end : -1;
}

function find(bytes: Buffer, byte: number, from: number): number {
  const found = bytes.indexOf(byte, from);
  return found < 0 ? bytes.length : found;
}

/** Returns the offset of the line after the one that ends at `end`: CRLF is one line end (WHATWG HTML §9.2.5). */
export function afterLineEnd(bytes: Buffer, end: number): number {
  return bytes[end] === CR && bytes[end + 1] === LF ? end + 2 : end + 1;
}

/** Returns where the content of the line ends whose last byte is at `end`. */
export function contentEnd(bytes: Buffer, end: number): number {
  return bytes[end] === LF && bytes[end - 1] === CR ? end - 1 : end;
}

/** Makes the function that finds the last CR or LF at or before `from`; -1 if there is none from `start` on. */
export function lineEndsBackwards(bytes: Buffer, start: number): (from: number) => number {
  // Each search continues where the last one for the same byte stopped, so that the bytes are searched only once.
  let lf = bytes.length;
  let cr = bytes.length;
  return (from) => {
    if (from < start) return -1;
    const byte = bytes[from];
    if (byte === LF || byte === CR) return from;
    if (lf > from) lf = bytes.lastIndexOf(LF, from);
    if (cr > from) cr = bytes.lastIndexOf(CR, from);
    const found = Math.max(lf, cr);
    return found < start ? -1 : found;
  };
}

/** What matters of a block's fields (WHATWG HTML §9.2.6). */
export interface BlockFields {
  /** Whether the block has data: only then is it an event for a parser. */
  hasData: boolean;
  /** The last `id` without NUL, as latin1 of its bytes, cut after `MAX_ID_BYTES` + 1; '' forgets the last one. */
  id: string | undefined;
  retryMs: number | undefined;
}

/** The longest id that is sent in a header. */
export const MAX_ID_BYTES = 4096;

const DATA = Buffer.from('data');
const ID = Buffer.from('id');
const RETRY = Buffer.from('retry');
const SPACE = 0x20;

/** The fields of a block that has no line yet. */
export function noFields(): BlockFields {
  return { hasData: false, id: undefined, retryMs: undefined };
}

/** A line without its line end; `to` is after its last byte. */
interface Line {
  readonly bytes: Buffer;
  readonly from: number;
  readonly to: number;
}

/** Adds the field of `line` to `fields`, if it is one that matters. */
export function takeField(fields: BlockFields, line: Line): void {
  const first = line.bytes[line.from];
  if (first === DATA[0]) {
    if (!fields.hasData) fields.hasData = valueAt(line, DATA) >= 0;
  } else if (first === ID[0]) {
    const at = valueAt(line, ID);
    if (at >= 0) takeId(fields, line.bytes, { at, to: line.to });
  } else if (first === RETRY[0]) {
    const at = valueAt(line, RETRY);
    const digits = at < 0 ? '' : line.bytes.toString('latin1', at, line.to);
    if (/^[0-9]+$/.test(digits)) fields.retryMs = Number(digits);
  }
}

function takeId(fields: BlockFields, bytes: Buffer, { at, to }: { at: number; to: number }): void {
  const id = bytes.toString('latin1', at, Math.min(to, at + MAX_ID_BYTES + 1));
  if (!id.includes('\0')) fields.id = id;
}

/** Where the value of the field `name` begins; -1 if the line has another name. */
function valueAt({ bytes, from, to }: Line, name: Buffer): number {
  const end = from + name.length;
  if (end > to) return -1;
  for (let n = 1; n < name.length; n++) if (bytes[from + n] !== name[n]) return -1;
  if (end === to) return to;
  if (bytes[end] !== COLON) return -1;
  return end + 1 < to && bytes[end + 1] === SPACE ? end + 2 : end + 1;
}
