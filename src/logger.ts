import { type DestinationStream, type Logger, type LoggerOptions, pino } from 'pino';

export type { Logger };

/**
 * Fields that could hold a secret if a whole object was logged by mistake. Log lines are built from named fields (see
 * `arrive/access-log.ts`); this list is a second protection.
 */
const REDACTED = [
  'headers',
  'req',
  'res',
  'cookie',
  'authorization',
  'password',
  '*.headers',
  '*.cookie',
  '*.authorization',
  '*.password',
  '*["x-api-key"]',
  'err.config',
  'err.options',
];

/**
 * JSON lines on `destination` (default: standard output), with ISO 8601 times and level names.
 * `level` is one of pino's: `silent`, `fatal`, `error`, `warn`, `info`, `debug`, `trace`.
 */
export function createLogger(level: string, destination?: DestinationStream): Logger {
  const options: LoggerOptions = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    redact: { paths: REDACTED, censor: '[redacted]' },
  };
  return destination ? pino(options, destination) : pino(options);
}
