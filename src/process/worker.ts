import { catchConfigError } from '../config/catch-config-error.ts';
import { loadConfig } from '../config/config.ts';
import { openLog } from './log.ts';
import { runInstance } from './run-instance.ts';
import { askForEnvironment, handlePrimaryMessages } from './worker-channel.ts';
import { workerLogFd } from './worker-output.ts';

/** Exit code of sysexits.h. */
const EX_USAGE = 64;

/**
 * Serves as one worker. The only argument is its number; its environment comes from the primary. Returns the exit code
 * if no primary has started it.
 */
export async function run([number]: readonly string[]): Promise<number | undefined> {
  if (!process.send) return EX_USAGE;
  const worker = Number(number);
  const exitCode = await catchConfigError(async () => {
    const config = loadConfig(await askForEnvironment());
    await runInstance(config, {
      log: openLog(config.logLevel, { worker, fd: workerLogFd }),
      worker,
      listenToPrimary: handlePrimaryMessages,
    });
    return undefined;
  });
  // Otherwise the channel to the primary would keep this process running.
  if (exitCode !== undefined) process.exit(exitCode);
  return undefined;
}
