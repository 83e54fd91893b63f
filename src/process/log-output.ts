import { writeSync } from 'node:fs';
import type { DestinationStream } from 'pino';
import { createLogger, type Logger } from '../logger.ts';
import { type NonBlocking, nonBlocking } from './non-blocking.ts';

/** How long a line may wait for others to be written with it, in ms: every line is written within 0.1 s. */
const BATCH_MS = 90;
/**
 * How many bytes are written in one piece at most, unless one line is longer. Text of other writers to the same pipe
 * never lands inside a piece of this length (POSIX `write`, PIPE_BUF; 4096 on Linux). It can inside a longer one.
 */
const PIECE_BYTES = 4096;
/** How many bytes may wait for a reader that stalls. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/** After a loss, lines are taken again when so many bytes are free, so that the line that reports the loss fits. */
const ROOM_BYTES = 16_384;
/** A line of this level or a higher one is written at once (pino's number of `warn`). */
const URGENT = 40;
/** When to write again after the reader took no more, in ms. */
const WRITE_AGAIN_MS = 20;
/** How many pieces are written in a row at most, so that many of them do not block the event loop. */
const PIECES_IN_A_ROW = 64;
/** At an exit, a reader that takes nothing for this long counts as stalled, in ms. */
const STALLED_MS = 400;
/** The longest time that an exit waits for a reader that is still reading, in ms. */
const LONGEST_END_MS = 2_000;
/** How often an exit tries to write, in ms. */
const END_WRITE_AGAIN_MS = 5;

export interface LogOutputOptions {
  /** The file descriptor to write to; by default standard output. */
  readonly fd?: number;
  /** Called with the number of lines dropped because the reader stalled, as soon as lines can be written again. */
  readonly onDropped?: (lines: number) => void;
}

export interface LogOutput extends DestinationStream {
  /** Writes the lines that wait for others. */
  flush(): void;
  /** Writes all that waits, and blocks meanwhile. The rest is lost after 0.4 s without progress, or after 2 s in all. */
  end(): void;
  /** Lines dropped so far. */
  dropped(): number;
}

interface OutputState {
  readonly output: NonBlocking;
  readonly onDropped: (lines: number) => void;
  /** The lines that are written together next. */
  batch: string;
  batchBytes: number;
  /** What the reader has not taken yet, in order. */
  readonly waiting: Buffer[];
  /** How many bytes are in `waiting` and in the batch. */
  bytes: number;
  /** Lines dropped so far, and how many of them are not reported to `onDropped` yet. */
  dropped: number;
  unreported: number;
  /** Set while lines wait, and for `BATCH_MS` after a write. */
  timer: NodeJS.Timeout | undefined;
}

/** Opens a log on standard output that is written in full when the process exits. */
export function openLog(level: string): { readonly logger: Logger; readonly output: LogOutput } {
  const output = logOutput({ onDropped: (lines) => logger.error({ lines }, 'log lines dropped') });
  process.on('exit', output.end);
  const logger = createLogger(level, output);
  return { logger, output };
}

/**
 * Writes the log lines of this process. A line is written at once, unless it is below `warn` and follows another one
 * within `BATCH_MS`: such lines are written together, so that under load not every request pays for a system call.
 * The output never blocks: up to 8 MiB wait for a reader that stalls, and lines beyond are dropped and counted. An
 * error, such as a full disk or a closed pipe, counts as a reader that takes nothing. Call `end` when the process
 * exits: then no line is lost while the reader reads. A process that ends without an exit (SIGKILL, an abort, a signal
 * that nobody handles) loses the lines that wait.
 */
export function logOutput({ fd = 1, onDropped = () => {} }: LogOutputOptions = {}): LogOutput {
  // pino's own destination (sonic-boom) does not fit: an asynchronous one loses text at an exit, and a synchronous one
  // overflows the stack when much of its text waits.
  const lines = { batch: '', batchBytes: 0, waiting: [], bytes: 0, dropped: 0, unreported: 0 };
  const state: OutputState = { output: nonBlocking(fd), onDropped, ...lines, timer: undefined };
  const stream = {
    // Makes pino set `lastLevel` before each line.
    [Symbol.for('pino.metadata')]: true,
    lastLevel: 0,
    write: (line: string) => add(state, line, stream.lastLevel >= URGENT),
    flush: () => flush(state),
    dropped: () => state.dropped,
    end: () => end(state),
  };
  return stream;
}

function add(state: OutputState, line: string, isUrgent: boolean): void {
  reportDropped(state);
  const length = Buffer.byteLength(line);
  // After a loss, no line is taken before the loss is reported.
  if (state.unreported > 0 || state.bytes + length > MAX_WAITING_BYTES) {
    state.dropped++;
    state.unreported++;
    return;
  }
  if (state.batchBytes + length > PIECE_BYTES) {
    if (isStalled(state)) endBatch(state);
    else flush(state, BATCH_MS);
  }
  state.batch += line;
  state.batchBytes += length;
  state.bytes += length;
  const waits = isStalled(state) || (state.timer && !isUrgent);
  if (!waits) flush(state, BATCH_MS);
}

function isStalled({ waiting }: OutputState): boolean {
  return waiting.length > 0;
}

function endBatch(state: OutputState): void {
  if (state.batch !== '') state.waiting.push(Buffer.from(state.batch));
  state.batch = '';
  state.batchBytes = 0;
}

/** Writes what waits; again later if the reader does not take all. If it does, the next lines wait for `pauseMs`. */
function flush(state: OutputState, pauseMs?: number): void {
  const before = state.bytes;
  endBatch(state);
  try {
    send(state);
  } catch {
    // The piece stays where it is.
  }
  clearTimeout(state.timer);
  const againMs = isStalled(state) ? WRITE_AGAIN_MS : pauseMs;
  state.timer = againMs === undefined ? undefined : setTimeout(flush, againMs, state).unref();
  if (state.bytes < before) reportDropped(state);
}

/** @throws the system's error if the reader takes no more */
function send(state: OutputState): void {
  const { output, waiting } = state;
  for (let n = 0; n < PIECES_IN_A_ROW; n++) {
    const [piece] = waiting;
    if (!piece) return;
    output.ready();
    const written = writeSync(output.fd, piece);
    state.bytes -= written;
    if (written < piece.length) waiting[0] = piece.subarray(written);
    else waiting.shift();
  }
}

function reportDropped(state: OutputState): void {
  const { unreported } = state;
  if (unreported === 0 || state.bytes + ROOM_BYTES > MAX_WAITING_BYTES) return;
  state.unreported = 0;
  state.onDropped(unreported);
}

/** Waits between writes with `Atomics.wait`, since the event loop no longer runs at an exit. */
function end(state: OutputState): void {
  const clock = new Int32Array(new SharedArrayBuffer(4));
  const begun = performance.now();
  let lastProgress = begun;
  flush(state);
  for (let now = begun; state.bytes > 0; now = performance.now()) {
    const before = state.bytes;
    flush(state);
    if (state.bytes < before) lastProgress = now;
    else if (now - lastProgress > STALLED_MS) break;
    if (now - begun > LONGEST_END_MS) break;
    if (state.bytes > 0) Atomics.wait(clock, 0, 0, END_WRITE_AGAIN_MS);
  }
}
