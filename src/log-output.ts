import { type DestinationStream, pino } from 'pino';

/** How long a line may wait for others to leave with it, in ms. */
const TOGETHER_MS = 100;
/**
 * No more bytes than this leave together: what Linux writes to a pipe as one piece (PIPE_BUF, see pipe(7)). Of more,
 * a pipe that is full takes a part, and what another worker writes comes into the middle of a line.
 */
const ONE_PIECE_BYTES = 4_096;
/** Above what ever waits, but for a line that is longer: nothing leaves by itself. */
const BUFFER_BYTES = 16_000;
/** From this level on a line leaves at once (pino's number of `warn`). */
const URGENT = 40;

export interface LogOutput extends DestinationStream {
  /** Sends off what waits. */
  leave(): void;
}

/**
 * Where log lines leave the process: file descriptor `fd`, by default standard output. A line leaves at once, but for
 * the calm ones that follow another within `TOGETHER_MS`: those leave together, so that under load not each request
 * pays for a system call of its own. Call `leave` when the process exits: nothing is lost then but by SIGKILL.
 */
export function logOutput(fd = 1): LogOutput {
  const output = pino.destination({ dest: fd, sync: true, minLength: BUFFER_BYTES });
  let lastLevel = 0;
  /** Whether a line has left so lately that calm ones wait. */
  let gathering: NodeJS.Timeout | undefined;
  let waitingBytes = 0;

  function flush(): void {
    // Writes before it returns; `flushSync` would wait for the disk as well.
    if (waitingBytes > 0) output.flush();
    waitingBytes = 0;
  }

  function leave(): void {
    clearTimeout(gathering);
    gathering = undefined;
    flush();
  }

  return Object.assign(
    {
      leave,
      write(line: string) {
        const bytes = Buffer.byteLength(line);
        if (waitingBytes + bytes > ONE_PIECE_BYTES) flush();
        output.write(line);
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
