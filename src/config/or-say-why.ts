import { ConfigError } from './config.ts';

/** Exit code of sysexits.h: something is set up wrong, and starting again mends nothing. */
const EX_CONFIG = 78;

/**
 * What `run` returns; or, if it throws a ConfigError, its exit code, once standard error says what is wrong.
 * @throws whatever else `run` throws
 */
export async function orSayWhy<T>(run: () => Promise<T>): Promise<T | number> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return EX_CONFIG;
  }
}
