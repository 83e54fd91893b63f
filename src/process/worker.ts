import { loadConfig } from '../config/config.ts';
import { orSayWhy } from '../config/or-say-why.ts';
import { openLog } from './log.ts';
import { runInstance } from './run-instance.ts';
import { askForEnvironment, obeyPrimary } from './worker-channel.ts';

/** Exit code of sysexits.h. */
const EX_USAGE = 64;

/**
 * Serves as the worker with the number that is the only argument, with the environment that the primary tells.
 * Returns the exit code if no primary has started it.
 */
export async function run([number]: readonly string[]): Promise<number | undefined> {
  if (!process.send) return EX_USAGE;
  const worker = Number(number);
  const exitCode = await orSayWhy(async () => {
    const config = loadConfig(await askForEnvironment());
    await runInstance(config, { log: openLog(config.logLevel, worker), worker, obey: obeyPrimary });
    return undefined;
  });
  // The channel to the primary would keep this process.
  if (exitCode !== undefined) process.exit(exitCode);
  return undefined;
}
