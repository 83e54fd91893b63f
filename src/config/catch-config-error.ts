import { ConfigError } from './config.ts';

/** Exit code of sysexits.h: the configuration is wrong, and another start would not help. */
const EX_CONFIG = 78;

/**
 * Runs `run` and returns its result. If it throws a ConfigError, writes the error to standard error and returns the
 * exit code.
 * @throws every other error of `run`
 */
export async function catchConfigError<T>(run: () => Promise<T>): Promise<T | number> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return EX_CONFIG;
  }
}
