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

/** The lines that wait to leave together. */
interface Gathering {
  readonly output: BoundedOutput;
  text: string;
  bytes: number;
  lines: number;
  /** The level of the line that comes next. */
  lastLevel: number;
  /** Set if a line has left so lately that calm ones wait. */
  timer: NodeJS.Timeout | undefined;
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
  const gathering: Gathering = { output, text: '', bytes: 0, lines: 0, lastLevel: 0, timer: undefined };
  return Object.assign(
    {
      leave: () => leave(gathering),
      dropped: output.dropped,
      end() {
        leave(gathering);
        output.end();
      },
      write: (line: string) => gather(gathering, line),
      set lastLevel(level: number) {
        gathering.lastLevel = level;
      },
    },
    // Has pino tell the level of each line before it comes.
    { [Symbol.for('pino.metadata')]: true },
  );
}

function gather(gathering: Gathering, line: string): void {
  const length = Buffer.byteLength(line);
  if (gathering.bytes + length > PIECE_BYTES) send(gathering);
  gathering.text += line;
  gathering.bytes += length;
  gathering.lines++;
  if (gathering.timer && gathering.lastLevel < URGENT) return;
  leave(gathering);
  gathering.timer = setTimeout(leave, TOGETHER_MS, gathering).unref();
}

function leave(gathering: Gathering): void {
  clearTimeout(gathering.timer);
  gathering.timer = undefined;
  send(gathering);
}

function send(gathering: Gathering): void {
  const { output, text, bytes, lines } = gathering;
  // Emptied first: the output may have a line written here, of what it has dropped.
  gathering.text = '';
  gathering.bytes = 0;
  gathering.lines = 0;
  if (lines > 0) output.write({ text, bytes, lines });
}
