import type { Logger } from '../logger.ts';
import type { StopSignal } from './worker-channel.ts';

/** npm passes on a signal that the terminal has sent to the whole group already: one press, two signals. */
const SAME_PRESS_MS = 500;

export interface ShutdownOptions {
  readonly logger: Logger;
  /** What to log when it begins. */
  says(): object;
  /** Shuts down in order. */
  close(signal: StopSignal): Promise<void>;
  /** Ends the process at once, with this code. */
  exit(code: number): void;
}

export interface Shutdown {
  /** Shuts down in order and exits with 0. Asked again later, as by a key that is pressed twice, exits at once with 1. */
  press(signal: StopSignal): void;
  /** The first half of that alone: never taken for a second press. */
  begin(signal: StopSignal): Promise<void>;
}

/** The two ways in which a process ends that is told to. */
export function shutdown({ logger, says, close, exit }: ShutdownOptions): Shutdown {
  let since: number | undefined;
  async function begin(signal: StopSignal): Promise<void> {
    if (since !== undefined) return;
    since = performance.now();
    logger.info({ signal, ...says() }, 'shutting down');
    await close(signal);
    logger.info('stopped');
    exit(0);
  }
  return {
    begin,
    press(signal) {
      if (since === undefined) void begin(signal);
      else if (performance.now() - since >= SAME_PRESS_MS) {
        logger.warn({ signal }, 'stopped at once');
        exit(1);
      }
    },
  };
}
