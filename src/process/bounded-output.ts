import { type Backlog, emptyBacklog, enqueue, type Piece, writeFirst } from './backlog.ts';
import { type NonBlocking, nonBlocking } from './non-blocking.ts';

/** When to write again after the reader took no more, in ms. */
const WRITE_AGAIN_MS = 20;
/** How many pieces are written in a row at most, so that a long backlog does not block the event loop. */
const PIECES_IN_A_ROW = 64;
/** At an exit, a reader that takes nothing for this long counts as stalled, in ms. */
const STALLED_MS = 400;
/** The longest time that an exit waits for a reader that is still reading, in ms. */
const LONGEST_END_MS = 2_000;
/** How often an exit tries to write, in ms. */
const END_WRITE_AGAIN_MS = 5;
/** After a loss, lines are taken again when so many bytes are free: the line that reports the loss must fit. */
const ROOM_BYTES = 16_384;

export interface BoundedOutputOptions {
  readonly fd: number;
  /** Text that waits is joined to pieces of at most this many bytes. A longer piece stays as it is. */
  readonly pieceBytes: number;
  /** How many bytes may wait for the reader. Lines beyond this are dropped. */
  readonly maxBytes: number;
  /** Called with the number of lines dropped since the last call, as soon as lines can be written again. */
  readonly onDropped: (lines: number) => void;
}

export interface BoundedOutput {
  write(piece: Piece): void;
  /** Writes what waits, and blocks meanwhile. The rest is lost after 0.4 s without progress, or after 2 s in all. */
  end(): void;
  /** Lines dropped so far. */
  dropped(): number;
}

/** The state of an output. */
interface State {
  readonly options: BoundedOutputOptions;
  readonly output: NonBlocking;
  readonly backlog: Backlog;
  /** Lines dropped so far, and how many of them are not reported to `onDropped` yet. */
  dropped: number;
  unreported: number;
  /** Set while a piece waits for the next write. */
  timer: NodeJS.Timeout | undefined;
}

/**
 * Writes to `fd` at once, in order and without blocking. What the reader does not take is kept in memory, up to a
 * bound. An error, such as a full disk or a closed pipe, counts as a reader that takes nothing.
 */
export function boundedOutput(options: BoundedOutputOptions): BoundedOutput {
  const output = nonBlocking(options.fd);
  const backlog = emptyBacklog();
  const state: State = { options, output, backlog, dropped: 0, unreported: 0, timer: undefined };
  return {
    write: (piece) => write(state, piece),
    end: () => end(state),
    dropped: () => state.dropped,
  };
}

function write(state: State, piece: Piece): void {
  const { options, backlog } = state;
  reportDropped(state);
  // After a loss, no line is taken before the loss is reported.
  if (state.unreported > 0 || backlog.bytes + piece.bytes > options.maxBytes) {
    state.dropped += piece.lines;
    state.unreported += piece.lines;
    return;
  }
  enqueue(backlog, piece, options.pieceBytes);
  if (!state.timer) send(state);
}

function send(state: State): void {
  const { output, backlog } = state;
  const before = backlog.bytes;
  clearTimeout(state.timer);
  state.timer = undefined;
  try {
    for (let n = 0; n < PIECES_IN_A_ROW && backlog.pieces.length > 0; n++) {
      output.ready();
      writeFirst(backlog, output.fd);
    }
  } catch {
    // The piece stays in the backlog.
  }
  if (backlog.pieces.length > 0) state.timer = setTimeout(send, WRITE_AGAIN_MS, state).unref();
  if (backlog.bytes < before) reportDropped(state);
}

function reportDropped(state: State): void {
  const { options, backlog, unreported } = state;
  if (unreported === 0 || backlog.bytes + ROOM_BYTES > options.maxBytes) return;
  state.unreported = 0;
  options.onDropped(unreported);
}

/** Waits between writes with `Atomics.wait`, since the event loop no longer runs at an exit. */
function end(state: State): void {
  const { backlog } = state;
  const clock = new Int32Array(new SharedArrayBuffer(4));
  const begun = performance.now();
  let lastProgress = begun;
  for (let now = begun; backlog.pieces.length > 0; now = performance.now()) {
    const before = backlog.bytes;
    send(state);
    if (backlog.bytes < before) lastProgress = now;
    else if (now - lastProgress > STALLED_MS) break;
    if (now - begun > LONGEST_END_MS) break;
    if (backlog.pieces.length > 0) Atomics.wait(clock, 0, 0, END_WRITE_AGAIN_MS);
  }
}
