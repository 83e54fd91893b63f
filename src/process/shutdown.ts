import type { Environment } from '../config/environment.ts';
import type { Logger } from '../logger.ts';

/** In ms. One Ctrl+C can arrive twice: the terminal signals the whole process group, and npm passes its signal on. */
const SAME_SIGNAL_MS = 500;
const PARENT_CHECK_MS = 250;
/** Read when the process starts: the parent may be gone by the time the relay listens. */
const PARENT = process.ppid;

/** Why the relay stops. */
export type StopSignal = 'SIGTERM' | 'SIGINT' | 'parent gone';

export interface ShutdownOptions {
  readonly logger: Logger;
  /** How many messages are not answered completely yet. */
  openMessages?(): number;
  /** Shuts down in order. */
  close(signal: StopSignal): Promise<void>;
  /** Whether npm started this process. */
  readonly underNpm: boolean;
}

/** Whether `npm start` or `npx bot-relay` has started this process. */
export function isUnderNpm({ npm_lifecycle_event: event }: Environment): boolean {
  return event === 'start' || event === 'npx';
}

/**
 * On SIGTERM and SIGINT, shuts down in order and exits with 0. A second signal, such as a second Ctrl+C, exits at once
 * with 1. Under npm, it also shuts down when the process that started this one is gone: npm passes a signal to the
 * shell between them, which ends and does not pass it on.
 */
export function stopOnSignals({ logger, openMessages, close, underNpm }: ShutdownOptions): void {
  let begunAt: number | undefined;
  async function stop(signal: StopSignal): Promise<void> {
    const now = performance.now();
    if (begunAt === undefined) {
      begunAt = now;
      logger.info({ signal, openMessages: openMessages?.() }, 'shutting down');
      await close(signal);
      logger.info('stopped');
      process.exit(0);
    } else if (now - begunAt >= SAME_SIGNAL_MS) {
      logger.warn({ signal }, 'stopped at once');
      process.exit(1);
    }
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
  if (!underNpm) return;
  const timer = setInterval(() => {
    if (process.ppid === PARENT) return;
    clearInterval(timer);
    void stop('parent gone');
  }, PARENT_CHECK_MS);
  timer.unref();
}

/** Logs an uncaught exception and exits, since it leaves the process in an unknown state. */
export function stopOnFault(logger: Logger): void {
  process.on('uncaughtException', (err) => {
    logger.fatal({ err }, 'uncaught');
    process.exit(1);
  });
}
