import { checkCommand } from '../check/check-command.ts';
import { readEnvironment } from '../config/environment.ts';

export { CHECK_USAGE as USAGE } from '../check/check-arguments.ts';

/** Checks the deployment that this environment configures, at this terminal. Returns the exit code. */
export function run(args: readonly string[]): Promise<number> {
  const terminal = { input: process.stdin, output: process.stdout, progress: process.stderr };
  return checkCommand(args, readEnvironment(), terminal);
}
