import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../documents/sources.ts';

/** The folder of a package that only a release needs. */
export const releasePath = (name: string): string => join(ROOT, 'build/release/node_modules', name);

/** Whether they are installed. */
export const hasReleasePackages: boolean = existsSync(releasePath('react-18'));
if (!hasReleasePackages) {
  const hint = 'Tests with React 18 are skipped; to run them: npm ci --prefix build/release';
  if (process.env.CI) throw new Error(hint);
  process.stderr.write(`${hint}\n`);
}
