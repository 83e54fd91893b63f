import type { Logger } from '../logger.ts';
import type { Shutdown } from './shutdown.ts';

const PARENT_CHECK_MS = 250;
/** Read when the process starts: the parent may be gone by the time the relay listens. */
const PARENT = process.ppid;

/** Calls `reload` on SIGHUP. */
export function reloadOnSignal(reload: () => void): void {
  process.on('SIGHUP', reload);
}

/** Shuts down on SIGTERM and SIGINT. */
export function stopOnSignal({ onSignal }: Shutdown): void {
  process.on('SIGTERM', () => onSignal('SIGTERM')).on('SIGINT', () => onSignal('SIGINT'));
}

/**
 * Shuts down when the process that started this one is gone. `npm start` passes a signal to the shell that is between
 * it and this process; the shell ends and does not pass the signal on.
 */
export function stopWithParent({ onSignal }: Shutdown): void {
  const timer = setInterval(() => {
    if (process.ppid === PARENT) return;
    clearInterval(timer);
    onSignal('parent gone');
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
