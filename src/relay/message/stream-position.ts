const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const BOM = [0xef, 0xbb, 0xbf];
const ID = [0x69, 0x64];
const ID_AFTER_LF = Buffer.from('\nid');
const ID_AFTER_CR = Buffer.from('\rid');

/** Where a stream of server-sent events stands after the bytes seen so far. */
export interface StreamPosition {
  /** Takes the next bytes of the stream. */
  push(chunk: Buffer): void;
  /** True if no event is half sent: whatever comes next starts a new one. */
  atEventBoundary(): boolean;
  /** True if the last byte was LF or none came yet; after a CR, an LF could still belong to it. */
  endsWithLf(): boolean;
  /** True once a field named `id` was seen: the client can resume the stream. */
  sawId(): boolean;
}

/**
 * Follows lines and events over arbitrarily split bytes (WHATWG HTML §9.2.5, §9.2.6): a BOM may come first;
 * lines end with LF, CRLF or CR; an empty line ends an event; a line that begins with a colon is a comment
 * and belongs to no event. Decodes and copies nothing: it lets the runtime search a chunk for the few bytes
 * that matter, and looks at the chunk from its end.
 */
export function streamPosition(): StreamPosition {
  // Every open stream has one of these: plain fields take less memory than functions that share them.
  const state: State = {
    last: LF,
    sawId: false,
    isEmpty: true,
    isComment: false,
    eventHasFields: false,
    bomSeen: 0,
    bomIsOver: false,
    idMatched: 0,
  };
  return {
    push(chunk) {
      if (chunk.length === 0) return;
      const bomBytes = state.bomIsOver ? 0 : skipBom(chunk, state);
      const start = state.last === CR && chunk[0] === LF ? 1 : bomBytes;
      state.last = chunk[chunk.length - 1] as number;
      if (start < chunk.length) takeLines(chunk, start, state);
    },
    atEventBoundary: () => state.isEmpty && !state.eventHasFields && !isHalfBom(state),
    endsWithLf: () => state.last === LF,
    sawId: () => state.sawId,
  };
}

interface LineState {
  /** Whether the current line has no byte so far. */
  isEmpty: boolean;
  isComment: boolean;
  /** Whether the current event has a finished field line. */
  eventHasFields: boolean;
}

interface State extends LineState {
  /** The last byte. */
  last: number;
  sawId: boolean;
  /** How many bytes of the BOM that may come first came, over however many chunks. */
  bomSeen: number;
  bomIsOver: boolean;
  /** How much of the field name `id` the current line's bytes make so far; -1 if they make something else. */
  idMatched: number;
}

function takeLines(chunk: Buffer, start: number, state: State): void {
  if (!state.sawId) {
    state.sawId =
      completesId(chunk, start, state) ||
      hasIdLine(chunk, start, ID_AFTER_LF) ||
      hasIdLine(chunk, start, ID_AFTER_CR);
  }
  const lineEnd = lineEndsBackwards(chunk, start)(chunk.length - 1);
  if (lineEnd < 0) {
    if (state.isEmpty) state.isComment = chunk[start] === COLON;
    state.isEmpty = false;
    return;
  }
  state.eventHasFields = hasFieldsUpTo(lineEnd, { chunk, start }, state);
  state.isEmpty = lineEnd === chunk.length - 1;
  state.isComment = chunk[lineEnd + 1] === COLON;
  state.idMatched = 0;
  if (!state.sawId) state.sawId = completesId(chunk, lineEnd + 1, state);
}

/**
 * How many bytes at the front of the chunk belong to the BOM. What began like one and turns out to be none was the
 * start of a line.
 */
function skipBom(chunk: Buffer, state: State): number {
  let at = 0;
  while (!state.bomIsOver && at < chunk.length) {
    if (chunk[at] === BOM[state.bomSeen]) {
      at++;
      state.bomSeen++;
      state.bomIsOver = state.bomSeen === BOM.length;
    } else {
      state.bomIsOver = true;
      if (state.bomSeen > 0) {
        state.isEmpty = false;
        state.idMatched = -1;
      }
    }
  }
  return at;
}

function isHalfBom({ bomIsOver, bomSeen }: State): boolean {
  return !bomIsOver && bomSeen > 0;
}

/** Whether the bytes of `chunk` from `from` on complete the field name `id` of the current line. */
function completesId(chunk: Buffer, from: number, state: State): boolean {
  for (let at = from; state.idMatched >= 0 && at < chunk.length; at++) {
    const byte = chunk[at] as number;
    if (state.idMatched === ID.length) {
      state.idMatched = -1;
      return endsFieldName(byte);
    }
    state.idMatched = byte === ID[state.idMatched] ? state.idMatched + 1 : -1;
  }
  return false;
}

/**
 * Whether the event that is current after the line end at `lineEnd` has a finished field line. Looks at the
 * lines of the chunk from the last one until one tells; `line` is the state before the chunk.
 */
function hasFieldsUpTo(
  lineEnd: number,
  { chunk, start }: { chunk: Buffer; start: number },
  line: LineState,
): boolean {
  const before = lineEndsBackwards(chunk, start);
  for (let end = lineEnd; ; ) {
    const contentEnd = chunk[end] === LF && chunk[end - 1] === CR ? end - 1 : end;
    const previous = before(contentEnd - 1);
    if (previous < 0) {
      if (line.isEmpty && contentEnd === start) return false;
      const isComment = line.isEmpty ? chunk[start] === COLON : line.isComment;
      return isComment ? line.eventHasFields : true;
    }
    if (previous + 1 === contentEnd) return false;
    if (chunk[previous + 1] !== COLON) return true;
    end = previous;
  }
}

/** Finds line ends in `chunk` from its back: the last CR or LF at or before `from`, or -1 before `start`. */
function lineEndsBackwards(chunk: Buffer, start: number): (from: number) => number {
  // Each search goes on where the last one of its kind stopped, so that a chunk is searched once in all.
  let lf = chunk.length;
  let cr = chunk.length;
  return (from) => {
    if (from < start) return -1;
    const byte = chunk[from];
    if (byte === LF || byte === CR) return from;
    if (lf > from) lf = chunk.lastIndexOf(LF, from);
    if (cr > from) cr = chunk.lastIndexOf(CR, from);
    const found = Math.max(lf, cr);
    return found < start ? -1 : found;
  };
}

function hasIdLine(chunk: Buffer, start: number, needle: Buffer): boolean {
  for (let at = chunk.indexOf(needle, start); at >= 0; at = chunk.indexOf(needle, at + 1)) {
    const next = chunk[at + needle.length];
    if (next !== undefined && endsFieldName(next)) return true;
  }
  return false;
}

function endsFieldName(byte: number): boolean {
  return byte === COLON || byte === LF || byte === CR;
}
