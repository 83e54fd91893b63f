import type { Logger } from '../logger.ts';
import type { StopSignal } from './worker-channel.ts';

/** In ms. One Ctrl+C can arrive twice: the terminal signals the whole process group, and npm passes its signal on. */
const SAME_SIGNAL_MS = 500;

export interface ShutdownOptions {
  readonly logger: Logger;
  /** Fields for the log line at its beginning. */
  logFields(): object;
  /** Shuts down in order. */
  close(signal: StopSignal): Promise<void>;
  /** Ends the process at once, with this code. */
  exit(code: number): void;
}

export interface Shutdown {
  /** Shuts down in order and exits with 0. A second signal, such as a second Ctrl+C, exits at once with 1. */
  onSignal(signal: StopSignal): void;
  /** Shuts down in order and exits with 0. Never counts as a second signal. */
  begin(signal: StopSignal): Promise<void>;
}

/** Makes the two ways to end a process: in order, and at once. */
export function shutdown({ logger, logFields, close, exit }: ShutdownOptions): Shutdown {
  let begunAt: number | undefined;
  async function begin(signal: StopSignal): Promise<void> {
    if (begunAt !== undefined) return;
    begunAt = performance.now();
    logger.info({ signal, ...logFields() }, 'shutting down');
    await close(signal);
    logger.info('stopped');
    exit(0);
  }
  return {
    begin,
    onSignal(signal) {
      if (begunAt === undefined) void begin(signal);
      else if (performance.now() - begunAt >= SAME_SIGNAL_MS) {
        logger.warn({ signal }, 'stopped at once');
        exit(1);
      }
    },
  };
}
