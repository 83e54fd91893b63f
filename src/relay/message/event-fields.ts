import { COLON } from './event-lines.ts';

/** What matters of a block's fields (WHATWG HTML §9.2.6). */
export interface BlockFields {
  /** Whether the block is an event: for any other, a parser calls nobody. */
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
export interface Line {
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
