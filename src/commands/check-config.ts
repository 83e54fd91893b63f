import { loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { risksOf } from '../config/risks.ts';
import { openLog } from '../process/log-output.ts';
import { signInOf } from '../process/sign-in.ts';
import { EX_USAGE, USAGE } from './usage.ts';

export { USAGE };

/** Says whether the relay starts with this environment, and which risks it would take. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  if (args.length > 0) {
    process.stderr.write(USAGE);
    return EX_USAGE;
  }
  const { environment, inFile } = readEnvironment();
  const config = loadConfig(environment, inFile);
  await signInOf(config, openLog(config.logLevel).logger);
  const risks = risksOf(config).map((risk) => `Risk: ${risk}`);
  process.stdout.write(['The configuration is good.', ...risks, ''].join('\n'));
  return 0;
}
