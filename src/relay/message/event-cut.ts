import {
  afterLineEnd,
  type BlockFields,
  COLON,
  CR,
  contentEnd,
  LF,
  lineEnds,
  lineEndsBackwards,
  MAX_ID_BYTES,
  nextLineEnd,
  noFields,
  takeField,
} from './event-lines.ts';

/** Where a stream stands in its current event and line. */
export interface LineState {
  /** Whether the current event has a complete field line. */
  hasFields: boolean;
  /** Whether the current line has no bytes yet, and else whether it is a comment. */
  lineIsEmpty: boolean;
  lineIsComment: boolean;
}

/**
 * Takes a chunk whose lines begin at `start`. Returns the offset up to which the chunk may be sent: after its last
 * blank line and the comment lines that follow it. Returns `start` if none of it may: then held bytes stay held.
 */
export function takeLines(state: LineState, chunk: Buffer, start: number): number {
  if (endsWithBlankLine(state, chunk, start)) {
    state.hasFields = false;
    state.lineIsEmpty = true;
    return chunk.length;
  }
  const before = lineEndsBackwards(chunk, start);
  const lastEnd = before(chunk.length - 1);
  if (lastEnd < 0) {
    takeHalfLine(state, chunk, start);
    return start;
  }
  const cut = cutBefore(state, { chunk, start, before }, lastEnd);
  state.hasFields = cut <= lastEnd;
  state.lineIsEmpty = lastEnd === chunk.length - 1;
  state.lineIsComment = chunk[lastEnd + 1] === COLON;
  return cut;
}

function takeHalfLine(state: LineState, chunk: Buffer, start: number): void {
  if (start === chunk.length) return;
  if (state.lineIsEmpty) state.lineIsComment = chunk[start] === COLON;
  state.lineIsEmpty = false;
}

/** A fast path: most chunks end with a whole event. */
function endsWithBlankLine(state: LineState, chunk: Buffer, start: number): boolean {
  const last = chunk.length - 1;
  if (last < start || !isLineEnd(chunk[last])) return false;
  const end = contentEnd(chunk, last);
  return end > start ? isLineEnd(chunk[end - 1]) : state.lineIsEmpty;
}

function isLineEnd(byte: number | undefined): boolean {
  return byte === LF || byte === CR;
}

/** A chunk, and the search for its line ends. */
interface Lines {
  readonly chunk: Buffer;
  readonly start: number;
  readonly before: (from: number) => number;
}

/** Looks at the lines backwards from the one that ends at `lastEnd`, until one decides how much may be sent. */
function cutBefore(state: LineState, { chunk, start, before }: Lines, lastEnd: number): number {
  for (let cut = lastEnd + 1, end = lastEnd; ; ) {
    const to = contentEnd(chunk, end);
    const previous = before(to - 1);
    if (previous < 0) return firstLineIsWhole(state, chunk, { from: start, to }) ? cut : start;
    const from = previous + 1;
    if (from === to) return cut;
    if (chunk[from] !== COLON) cut = from;
    end = previous;
  }
}

/** Whether the chunk's first line, which may have begun before it, ends an event or is a comment between two. */
function firstLineIsWhole(
  state: LineState,
  chunk: Buffer,
  { from, to }: { from: number; to: number },
): boolean {
  const { lineIsEmpty, lineIsComment, hasFields } = state;
  if (lineIsEmpty && from === to) return true;
  return !hasFields && (lineIsEmpty ? chunk[from] === COLON : lineIsComment);
}

/** Where the event or comment line ends that stood at `state` before the chunk, which must have its end. */
export function endOfHeld(state: LineState, chunk: Buffer, start: number): number {
  const ends = lineEnds(chunk);
  let { lineIsEmpty: isEmpty, lineIsComment: isComment, hasFields } = state;
  for (let at = start; ; ) {
    const end = nextLineEnd(ends, at);
    if (end < 0) throw new Error('The end of the held line is not in the chunk.');
    const isBlank = isEmpty && end === at;
    if (isEmpty) isComment = chunk[at] === COLON;
    at = afterLineEnd(chunk, end);
    if (isBlank || (isComment && !hasFields)) return at;
    hasFields ||= !isComment;
    isEmpty = true;
  }
}

/** An event or a comment line that is sent as it comes, since it can't be held. */
export interface EventPart {
  /** As much as is needed of the beginning of the current line, as latin1. */
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
