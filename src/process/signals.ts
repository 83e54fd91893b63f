import type { Logger } from '../logger.ts';
import type { Shutdown } from './shutdown.ts';

const PARENT_CHECK_MS = 250;
/** Asked before anything else: it may be gone by the time the relay listens. */
const PARENT = process.ppid;

/** Has `reload` called on SIGHUP. */
export function reloadOnSignal(reload: () => void): void {
  process.on('SIGHUP', reload);
}

/** Shuts down on SIGTERM and SIGINT. */
export function stopOnSignal({ press }: Shutdown): void {
  process.on('SIGTERM', () => press('SIGTERM')).on('SIGINT', () => press('SIGINT'));
}

/**
 * Shuts down when the process that started this one is gone. `npm start` hands a signal to the shell between it and
 * this process, which dies of it and passes nothing on.
 */
export function stopWithParent({ press }: Shutdown): void {
  const timer = setInterval(() => {
    if (process.ppid === PARENT) return;
    clearInterval(timer);
    press('parent gone');
  }, PARENT_CHECK_MS);
  timer.unref();
}

/** Stops at a fault that nothing caught, and logs it: such a fault leaves the process in an unknown state. */
export function stopOnFault(logger: Logger): void {
  process.on('uncaughtException', (err) => {
    logger.fatal({ err }, 'uncaught');
    process.exit(1);
  });
}
