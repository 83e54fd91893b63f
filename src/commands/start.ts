import { loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { serve } from '../process/serve.ts';
import { isUnderNpm } from '../process/shutdown.ts';

export { USAGE } from './usage.ts';

/** Serves with this environment until a signal. Resolves once the relay listens. */
export async function run(): Promise<undefined> {
  const { environment, inFile } = readEnvironment();
  await serve(loadConfig(environment, inFile), isUnderNpm(environment));
}
