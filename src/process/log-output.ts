import type { DestinationStream } from 'pino';
import { type BoundedOutput, boundedOutput } from './bounded-output.ts';

/** How long a line may wait for others to leave with it, in ms: with it, all leave within a tenth of a second. */
const TOGETHER_MS = 90;
/**
 * So many bytes leave in one piece at most, save for a longer line: what others write to the same pipe never comes
 * between them (POSIX `write`, PIPE_BUF; 4096 on Linux), as it would into a larger piece whenever the reader is slow.
 */
const PIECE_BYTES = 4096;
/** What may wait for a reader that stalls, in bytes. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/** From this level on a line leaves at once (pino's number of `warn`). */
const URGENT = 40;

export interface LogOutputOptions {
  /** The file descriptor to write to; by default standard output. */
  readonly fd?: number;
  /** Told how many lines a stalled reader has cost, as soon as lines leave again. */
  readonly onDropped?: (lines: number) => void;
}

export interface LogOutput extends DestinationStream, Pick<BoundedOutput, 'dropped' | 'end'> {
  /** Sends off what waits for other lines. */
  leave(): void;
}

/**
 * Where log lines leave the process. A line leaves at once, but for the calm ones that follow another within
 * `TOGETHER_MS`: those leave together, so that under load not each request pays for a system call. It never waits for
 * its reader: 8 MiB wait for one that stalls, and lines beyond are dropped and counted. Call `end` when the process
 * exits: with a reader that reads, nothing is lost then but by what ends it without an exit (SIGKILL, an abort, a
 * signal that nobody handles).
 */
export function logOutput({ fd = 1, onDropped = () => {} }: LogOutputOptions = {}): LogOutput {
  // pino's own destination (sonic-boom) loses the piece under way at an exit if it is not synchronous, and overflows
  // the stack on its way through a long backlog if it is.
  const output = boundedOutput({ fd, pieceBytes: PIECE_BYTES, maxBytes: MAX_WAITING_BYTES, onDropped });
  let lastLevel = 0;
  /** Whether a line has left so lately that calm ones wait. */
  let gathering: NodeJS.Timeout | undefined;
  let text = '';
  let bytes = 0;
  let lines = 0;

  function send(): void {
    const piece = { text, bytes, lines };
    text = '';
    bytes = 0;
    lines = 0;
    if (piece.lines > 0) output.write(piece);
  }

  function leave(): void {
    clearTimeout(gathering);
    gathering = undefined;
    send();
  }

  return Object.assign(
    {
      leave,
      dropped: output.dropped,
      end() {
        leave();
        output.end();
      },
      write(line: string) {
        const length = Buffer.byteLength(line);
        if (bytes + length > PIECE_BYTES) send();
        text += line;
        bytes += length;
        lines++;
        if (gathering && lastLevel < URGENT) return;
        leave();
        gathering = setTimeout(leave, TOGETHER_MS).unref();
      },
      set lastLevel(level: number) {
        lastLevel = level;
      },
    },
    // Has pino tell the level of each line before it comes.
    { [Symbol.for('pino.metadata')]: true },
  );
}
