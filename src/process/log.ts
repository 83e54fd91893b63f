import { createLogger, type Logger } from '../logger.ts';
import { type LogOutput, logOutput } from './log-output.ts';

/** A logger and its output. */
export interface Log {
  readonly logger: Logger;
  readonly output: LogOutput;
}

/** A process that logs to a descriptor of its primary, with its number in each line. */
interface OfWorker {
  readonly worker: number;
  readonly fd: number;
}

/** Opens a log, on standard output unless it is of a worker, that is written in full when the process exits. */
export function openLog(level: string, ofWorker?: OfWorker): Log {
  const output = logOutput({
    ...(ofWorker && { fd: ofWorker.fd }),
    onDropped: (lines) => logger.error({ lines }, 'log lines dropped'),
  });
  process.on('exit', output.end);
  const root = createLogger(level, output);
  const logger = ofWorker ? root.child({ worker: ofWorker.worker }) : root;
  return { logger, output };
}
