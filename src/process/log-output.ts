import type { DestinationStream } from 'pino';
import { type BoundedOutput, boundedOutput } from './bounded-output.ts';

/** How long a line may wait for others to be written with it, in ms: every line is written within 0.1 s. */
const BATCH_MS = 90;
/**
 * How many bytes are written in one piece at most, unless one line is longer. Text of other writers to the same pipe
 * never lands inside a piece of this length (POSIX `write`, PIPE_BUF; 4096 on Linux). It can inside a longer one.
 */
const PIECE_BYTES = 4096;
/** How many bytes may wait for a reader that stalls. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/** A line of this level or a higher one is written at once (pino's number of `warn`). */
const URGENT = 40;

export interface LogOutputOptions {
  /** The file descriptor to write to; by default standard output. */
  readonly fd?: number;
  /** Called with the number of lines dropped because the reader stalled, as soon as lines can be written again. */
  readonly onDropped?: (lines: number) => void;
}

export interface LogOutput extends DestinationStream, Pick<BoundedOutput, 'dropped' | 'end'> {
  /** Writes the lines that wait for others. */
  flush(): void;
}

/** The lines that wait to be written together. */
interface Batch {
  readonly output: BoundedOutput;
  text: string;
  bytes: number;
  lines: number;
  /** The level of the next line; pino sets it before it writes the line. */
  lastLevel: number;
  /** Set for `BATCH_MS` after a write; lines below `warn` wait meanwhile. */
  timer: NodeJS.Timeout | undefined;
}

/**
 * Writes the log lines of this process. A line is written at once, unless it is below `warn` and follows another one
 * within `BATCH_MS`: such lines are written together, so that under load not every request pays for a system call.
 * The output never blocks: up to 8 MiB wait for a reader that stalls, and lines beyond are dropped and counted. Call
 * `end` when the process exits: then no line is lost while the reader reads. A process that ends without an exit
 * (SIGKILL, an abort, a signal that nobody handles) loses the lines that wait.
 */
export function logOutput({ fd = 1, onDropped = () => {} }: LogOutputOptions = {}): LogOutput {
  // pino's own destination (sonic-boom) does not fit: an asynchronous one loses text at an exit, and a synchronous one
  // overflows the stack when its backlog is long.
  const output = boundedOutput({ fd, pieceBytes: PIECE_BYTES, maxBytes: MAX_WAITING_BYTES, onDropped });
  const batch: Batch = { output, text: '', bytes: 0, lines: 0, lastLevel: 0, timer: undefined };
  return Object.assign(
    {
      flush: () => flush(batch),
      dropped: output.dropped,
      end() {
        flush(batch);
        output.end();
      },
      write: (line: string) => add(batch, line),
      set lastLevel(level: number) {
        batch.lastLevel = level;
      },
    },
    // Makes pino set `lastLevel` before each line.
    { [Symbol.for('pino.metadata')]: true },
  );
}

function add(batch: Batch, line: string): void {
  const length = Buffer.byteLength(line);
  if (batch.bytes + length > PIECE_BYTES) writeBatch(batch);
  batch.text += line;
  batch.bytes += length;
  batch.lines++;
  if (batch.timer && batch.lastLevel < URGENT) return;
  flush(batch);
  batch.timer = setTimeout(flush, BATCH_MS, batch).unref();
}

function flush(batch: Batch): void {
  clearTimeout(batch.timer);
  batch.timer = undefined;
  writeBatch(batch);
}

function writeBatch(batch: Batch): void {
  const { output, text, bytes, lines } = batch;
  // Emptied first: the output may log a line about dropped lines, which is written here.
  batch.text = '';
  batch.bytes = 0;
  batch.lines = 0;
  if (lines > 0) output.write({ text, bytes, lines });
}
