import { type DestinationStream, pino } from 'pino';

/** How long a line may wait for others to leave with it, in ms. */
const TOGETHER_MS = 100;
/**
 * So many bytes leave in one piece at most, save for a longer line: what others write to the same pipe never comes
 * between them (POSIX `write`, PIPE_BUF; 4096 on Linux), as it would into a larger piece whenever the reader is slow.
 */
const PIECE_BYTES = 4096;
/** From this level on a line leaves at once (pino's number of `warn`). */
const URGENT = 40;

export interface LogOutput extends DestinationStream {
  /** Sends off what waits. */
  leave(): void;
}

/**
 * Where log lines leave the process: file descriptor `fd`, by default standard output. A line leaves at once, but for
 * the calm ones that follow another within `TOGETHER_MS`: those leave together, so that under load not each request
 * pays for a system call. Call `leave` when the process exits: nothing is lost then but by what ends it without
 * an exit (SIGKILL, an abort, a signal that nobody handles).
 */
export function logOutput(fd = 1): LogOutput {
  // Writes before it returns.
  const output = pino.destination({ dest: fd, sync: true });
  let lastLevel = 0;
  /** Whether a line has left so lately that calm ones wait. */
  let gathering: NodeJS.Timeout | undefined;
  let waiting = '';
  let waitingBytes = 0;

  function send(): void {
    const piece = waiting;
    waiting = '';
    waitingBytes = 0;
    if (piece !== '') output.write(piece);
  }

  function leave(): void {
    clearTimeout(gathering);
    gathering = undefined;
    send();
  }

  return Object.assign(
    {
      leave,
      write(line: string) {
        const bytes = Buffer.byteLength(line);
        if (waitingBytes + bytes > PIECE_BYTES) send();
        waiting += line;
        waitingBytes += bytes;
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
