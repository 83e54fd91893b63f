import { readEnvironment } from '../config/environment.ts';
import { DEMO_BOT_USAGE, startDemoBot } from '../demo/demo-bot.ts';
import { openLog } from './log-output.ts';

export { DEMO_BOT_USAGE as USAGE } from '../demo/demo-bot.ts';

/** Exit code of sysexits.h. */
const EX_USAGE = 64;

/**
 * Runs the demo's bot service as a process of its own, until SIGTERM or SIGINT. Returns nothing once it listens, or the
 * exit code if an argument is wrong.
 */
export async function run(args: readonly string[]): Promise<number | undefined> {
  // Called only to remove the secrets from `process.env`.
  readEnvironment();
  const { logger } = openLog('info');
  try {
    const service = await startDemoBot(args);
    const stop = async (signal: string) => {
      logger.info({ signal }, 'stopped');
      await service.close();
      process.exit(0);
    };
    process.once('SIGTERM', stop).once('SIGINT', stop);
    logger.info({ host: service.url.hostname, port: Number(service.url.port) }, 'listening');
    return undefined;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n${DEMO_BOT_USAGE}`);
    return EX_USAGE;
  }
}
