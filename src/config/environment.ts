import { config as readDotenv } from 'dotenv';
import { secretVariables } from './variables.ts';

/** Variables by name, as a process has them. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** What a configuration is read from. */
export interface Sources {
  readonly environment: Environment;
  /** The names that come from `.env`, where none may be unknown. */
  readonly inFile?: readonly string[];
}

/** The password with which `check` signs in: no variable of the relay. */
const CHECK_PASSWORD = 'CHECK_PASSWORD';

/**
 * The process's environment over what `.env` holds. The file's values stay out of `process.env`, and secrets are
 * taken out of it, so that no child process and no diagnostic report has them: a second call finds none.
 */
export function readEnvironment(): Sources {
  const fromFile: Record<string, string> = {};
  readDotenv({ processEnv: fromFile, quiet: true });
  const environment = { ...fromFile, ...process.env };
  for (const name of [...secretVariables(), CHECK_PASSWORD]) delete process.env[name];
  return { environment, inFile: Object.keys(fromFile).filter((name) => name !== CHECK_PASSWORD) };
}
