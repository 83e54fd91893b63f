import { readEnvironment } from '../config/environment.ts';
import { startDemoBot, DEMO_BOT_USAGE as USAGE } from '../demo/demo-bot.ts';
import { openLog } from '../process/log-output.ts';
import { isUnderNpm, stopOnSignals } from '../process/shutdown.ts';
import { EX_USAGE } from './usage.ts';

export { USAGE };

/**
 * Runs the demo's bot service as a process of its own, until a signal. Returns nothing once it listens, or the exit code
 * if an argument is wrong.
 */
export async function run(args: readonly string[]): Promise<number | undefined> {
  // It also removes the secrets from `process.env`.
  const { environment } = readEnvironment();
  const { logger } = openLog('info');
  try {
    const { url, close } = await startDemoBot(args);
    stopOnSignals({ logger, close, underNpm: isUnderNpm(environment) });
    logger.info({ host: url.hostname, port: Number(url.port) }, 'listening');
    return undefined;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n${USAGE}`);
    return EX_USAGE;
  }
}
