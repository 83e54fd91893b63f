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
