import { config as readDotenv } from 'dotenv';
import { secretVariables } from './variables.ts';

/** The environment variables of a process, by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Where a configuration is read from. */
export interface Sources {
  readonly environment: Environment;
  /** The names that come from `.env`; an unknown one among them is a problem. */
  readonly inFile?: readonly string[];
}

/** The passwords with which `check` signs in. They are no variables of the relay. */
const CHECK_PASSWORDS: readonly string[] = ['CHECK_PASSWORD', 'CHECK_OTHER_PASSWORD'];

/**
 * Reads the variables of `.env` and of the process, which win. The file's values are not put into `process.env`, and
 * secrets are removed from it, so that no child process and no diagnostic report has them. So a second call finds no
 * secrets.
 */
export function readEnvironment(): Sources {
  const fromFile: Record<string, string> = {};
  readDotenv({ processEnv: fromFile, quiet: true });
  const environment = { ...fromFile, ...process.env };
  for (const name of [...secretVariables(), ...CHECK_PASSWORDS]) delete process.env[name];
  return { environment, inFile: Object.keys(fromFile).filter((name) => !CHECK_PASSWORDS.includes(name)) };
}
