import type { ServiceConfig } from '../config/config.ts';
import { BUILD } from './build-info.ts';
import { openLog } from './log-output.ts';
import { stopOnFault, stopOnSignals } from './shutdown.ts';
import { type ServiceStart, serviceLines, startService } from './start-service.ts';

/** The port of the console where none is set. */
const CONSOLE_PORT = 4001;

export interface RunServiceOptions extends Pick<ServiceStart, 'keys' | 'limit'> {
  /** Whether npm started this process. */
  readonly underNpm: boolean;
}

/**
 * Runs the bot service alone, with its console, until a signal. Resolves once it listens.
 * @throws ConfigError if its data cannot be used, or the console has no password where it needs one
 */
export async function runService(config: ServiceConfig, { underNpm, ...options }: RunServiceOptions) {
  const { logger, output } = openLog(config.logLevel);
  stopOnFault(logger);
  const { host, port, data } = config;
  const consolePort = config.console.port ?? CONSOLE_PORT;
  const { url, console, close } = await startService(config, { ...options, logger, host, port, consolePort });
  const { version, revision } = BUILD;
  logger.info({ version, revision, host: url.hostname, port: Number(url.port) }, 'listening');
  const lines = [
    `The bot service is running: ${url.origin}`,
    data === undefined
      ? 'It keeps everything in memory; set SERVICE_DATA and SERVICE_SECRET for a file.'
      : `It keeps everything in ${data}.`,
    ...serviceLines(config, console),
  ];
  output.write(`\n${lines.map((line) => `  ${line}\n`).join('')}\n`);
  stopOnSignals({ logger, close, underNpm });
}
