import { createLogger, type Logger } from '../logger.ts';
import { type LogOutput, logOutput } from './log-output.ts';

/** A logger and its output. */
export interface Log {
  readonly logger: Logger;
  readonly output: LogOutput;
}

/** Opens a log on standard output that is written in full when the process exits. `worker` is the number of a worker. */
export function openLog(level: string, worker?: number): Log {
  const output = logOutput({ onDropped: (lines) => logger.error({ lines }, 'log lines dropped') });
  process.on('exit', output.end);
  const root = createLogger(level, output);
  const logger = worker === undefined ? root : root.child({ worker });
  return { logger, output };
}
