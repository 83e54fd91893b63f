import { readFileSync } from 'node:fs';

/** Which build this is. */
export interface BuildInfo {
  /** That of package.json. */
  readonly version: string;
  /** The commit that was built, or `unknown`. */
  readonly revision: string;
}

/** Which build this is: `npm run build` has written its commit beside the compiled files. */
export const BUILD: BuildInfo = readBuild();

function readBuild(): BuildInfo {
  const read = (name: string) => readFileSync(new URL(name, import.meta.url), 'utf8');
  const { version } = JSON.parse(read('../../package.json')) as { version: string };
  try {
    return { version, revision: read('../revision.txt').trim() };
  } catch {
    return { version, revision: 'unknown' };
  }
}
