import { type DestinationStream, pino } from 'pino';

/** How long a line may wait for others to leave with it, in ms. */
const TOGETHER_MS = 100;
/** So many bytes leave without waiting for more. */
const FULL_BYTES = 16_000;
/** From this level on a line leaves at once (pino's number of `warn`). */
const URGENT = 40;

export interface LogOutput extends DestinationStream {
  /** Sends off what waits. */
  leave(): void;
}

/**
 * Where log lines leave the process: file descriptor `fd`, by default standard output. A line leaves at once, but for
 * the calm ones that follow another within `TOGETHER_MS`: those leave together, so that under load not each request
 * pays for a system call. Call `leave` when the process exits: nothing is lost then but by SIGKILL.
 */
export function logOutput(fd = 1): LogOutput {
  const output = pino.destination({ dest: fd, sync: true, minLength: FULL_BYTES });
  let lastLevel = 0;
  /** Whether a line has left so lately that calm ones wait. */
  let gathering: NodeJS.Timeout | undefined;
  let waits = false;

  function leave(): void {
    clearTimeout(gathering);
    gathering = undefined;
    // Writes before it returns; `flushSync` would wait for the disk as well.
    if (waits) output.flush();
    waits = false;
  }

  return Object.assign(
    {
      leave,
      write(line: string) {
        output.write(line);
        waits = true;
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
