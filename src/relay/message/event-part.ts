import { type BlockFields, MAX_ID_BYTES, noFields, takeField } from './event-fields.ts';
import { afterLineEnd, lineEnds, nextLineEnd } from './event-lines.ts';

/** An event or a comment line that goes down as it comes. */
export interface EventPart {
  /** The beginning of the current line, as latin1; all that is needed of it. */
  line: string;
  hasFields: boolean;
  readonly fields: BlockFields;
}

/** Enough to know a field's name, and an id that is too long for a header. */
const KEPT_BYTES = 'id: '.length + MAX_ID_BYTES + 1;

/** An event or comment line of which nothing has come yet. */
export function eventPart(): EventPart {
  return { line: '', hasFields: false, fields: noFields() };
}

/**
 * Takes the next bytes, from `start` on. Returns the offset after the end of the event or comment line; -1 if it goes
 * on.
 */
export function takePart(part: EventPart, bytes: Buffer, start: number): number {
  const ends = lineEnds(bytes);
  for (let at = start; ; ) {
    const end = nextLineEnd(ends, at);
    keepLine(part, bytes.subarray(at, end < 0 ? bytes.length : end));
    if (end < 0) return -1;
    at = afterLineEnd(bytes, end);
    const { line } = part;
    if (line === '' || (isComment(line) && !part.hasFields)) return at;
    if (!isComment(line)) takeLine(part);
    part.line = '';
  }
}

function keepLine(part: EventPart, more: Buffer): void {
  part.line += more.toString('latin1', 0, Math.max(0, KEPT_BYTES - part.line.length));
}

function takeLine(part: EventPart): void {
  part.hasFields = true;
  if (!/^(data|id|retry)/.test(part.line)) return;
  const bytes = Buffer.from(part.line, 'latin1');
  takeField(part.fields, { bytes, from: 0, to: bytes.length });
}

function isComment(line: string): boolean {
  return line.startsWith(':');
}
