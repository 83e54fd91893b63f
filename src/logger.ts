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
 * Makes the function for the time of a line, in ISO 8601, as pino writes it itself. What changes once in a second is
 * made once in a second.
 */
function isoTimes(): () => string {
  let second = Number.NaN;
  let start = '';
  return () => {
    const now = Date.now();
    const ms = now % 1000;
    if (now - ms !== second) {
      second = now - ms;
      start = `,"time":"${new Date(second).toISOString().slice(0, -4)}`;
    }
    return `${start}${String(ms).padStart(3, '0')}Z"`;
  };
}

/**
 * JSON lines on `destination` (default: standard output), with ISO 8601 times and level names.
 * `level` is one of pino's: `silent`, `fatal`, `error`, `warn`, `info`, `debug`, `trace`.
 */
export function createLogger(level: string, destination?: DestinationStream): Logger {
  const options: LoggerOptions = {
    level,
    base: null,
    timestamp: isoTimes(),
    formatters: { level: (label) => ({ level: label }) },
    redact: { paths: REDACTED, censor: '[redacted]' },
  };
  return destination ? pino(options, destination) : pino(options);
}
