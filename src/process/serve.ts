import { catchConfigError } from '../config/catch-config-error.ts';
import { loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { openLog } from './log.ts';
import { runInstance } from './run-instance.ts';

/**
 * Serves with this environment, in this process or with several workers. Returns nothing once it listens, or the exit
 * code if the configuration cannot be used.
 */
export function run(): Promise<number | undefined> {
  return catchConfigError(async () => {
    const { environment, inFile } = readEnvironment();
    const config = loadConfig(environment, inFile);
    const log = openLog(config.logLevel);
    const underNpm = environment.npm_lifecycle_event === 'start';
    if (config.workers > 1) {
      const { runWorkers } = await import('./run-workers.ts');
      await runWorkers(config, { environment, log, underNpm });
    } else await runInstance(config, { log, underNpm });
    return undefined;
  });
}
