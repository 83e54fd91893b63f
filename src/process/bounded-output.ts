import { type Backlog, emptyBacklog, enqueue, type Piece, sendFirst } from './backlog.ts';
import { type NonBlocking, nonBlocking } from './non-blocking.ts';

/** How long to leave a reader alone that takes no more, in ms. */
const RETRY_MS = 20;
/** Pieces that leave in a row at most, so that a long backlog delays nothing else. */
const PIECES_IN_A_ROW = 64;
/** At an exit: a reader that takes nothing for so long counts as stalled, in ms. A primary waits after its workers. */
const STALLED_MS = 400;
/** What an exit waits in all for a reader that goes on reading, in ms. */
const LONGEST_END_MS = 2_000;
/** How often such a reader is tried, in ms. */
const END_RETRY_MS = 5;
/** The space that must be free before a loss ends, in bytes, so that the line that tells of it is not lost. */
const ROOM_BYTES = 16_384;

export interface BoundedOutputOptions {
  readonly fd: number;
  /** What waits leaves in pieces of so many bytes at most, save for one that came longer. */
  readonly pieceBytes: number;
  /** What may wait for a reader; what comes beyond is dropped. */
  readonly maxBytes: number;
  /** Told how many lines were dropped since the last time, as soon as others leave again. */
  readonly onDropped: (lines: number) => void;
}

export interface BoundedOutput {
  write(piece: Piece): void;
  /** Has what waits leave, as far as the reader takes it: without progress for 0.4 s or after 2 s the rest is lost. */
  end(): void;
  /** Lines dropped so far. */
  dropped(): number;
}

/** The state of an output. */
interface State {
  readonly options: BoundedOutputOptions;
  readonly output: NonBlocking;
  readonly backlog: Backlog;
  /** Lines dropped so far, and those of them that `onDropped` has not been told of. */
  dropped: number;
  untold: number;
  /** Set while something waits for the next attempt. */
  retry: NodeJS.Timeout | undefined;
}

/**
 * Writes to `fd` at once and in order, and never waits for a reader: what it does not take is kept in memory, up to a
 * bound. An error such as a full disk or a reader that is gone is a reader that takes nothing.
 */
export function boundedOutput(options: BoundedOutputOptions): BoundedOutput {
  const output = nonBlocking(options.fd);
  const backlog = emptyBacklog();
  const state: State = { options, output, backlog, dropped: 0, untold: 0, retry: undefined };
  return {
    write: (piece) => write(state, piece),
    end: () => end(state),
    dropped: () => state.dropped,
  };
}

function write(state: State, piece: Piece): void {
  const { options, backlog } = state;
  tellDropped(state);
  // What comes behind a loss waits for it to be told.
  if (state.untold > 0 || backlog.bytes + piece.bytes > options.maxBytes) {
    state.dropped += piece.lines;
    state.untold += piece.lines;
    return;
  }
  enqueue(backlog, piece, options.pieceBytes);
  if (!state.retry) send(state);
}

function send(state: State): void {
  const { output, backlog } = state;
  const before = backlog.bytes;
  const hasStalled = state.retry !== undefined;
  clearTimeout(state.retry);
  state.retry = undefined;
  try {
    output.ready(hasStalled);
    for (let n = 0; n < PIECES_IN_A_ROW && backlog.pieces.length > 0; n++) sendFirst(backlog, output.fd);
  } catch {
    // It waits.
  }
  if (backlog.pieces.length > 0) state.retry = setTimeout(send, RETRY_MS, state).unref();
  if (backlog.bytes < before) tellDropped(state);
}

function tellDropped(state: State): void {
  const { options, backlog, untold } = state;
  if (untold === 0 || backlog.bytes + ROOM_BYTES > options.maxBytes) return;
  state.untold = 0;
  options.onDropped(untold);
}

/** Waits between its attempts without the event loop, which has stopped at an exit. */
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
    if (backlog.pieces.length > 0) Atomics.wait(clock, 0, 0, END_RETRY_MS);
  }
}
