import { catchConfigError, loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { risksOf } from '../config/risks.ts';
import { openLog } from './log-output.ts';
import { signInOf } from './sign-in.ts';

/** Exit code of sysexits.h. */
const EX_USAGE = 64;

/** Says whether the relay starts with this environment, and which risks it would take. Returns the exit code. */
export function run(args: readonly string[]): Promise<number> {
  return catchConfigError(async () => {
    if (args.length > 0) return EX_USAGE;
    const { environment, inFile } = readEnvironment();
    const config = loadConfig(environment, inFile);
    await signInOf(config, openLog(config.logLevel).logger);
    const risks = risksOf(config).map((risk) => `Risk: ${risk}`);
    process.stdout.write(['The configuration is good.', ...risks, ''].join('\n'));
    return 0;
  });
}
