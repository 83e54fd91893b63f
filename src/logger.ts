import { type DestinationStream, type Logger, type LoggerOptions, pino } from 'pino';

export type { Logger };

/**
 * Where a secret could hide if somebody logged a whole object. The log lines themselves are built from
 * named fields (see `arrive/access-log.ts`); this is the net below.
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
