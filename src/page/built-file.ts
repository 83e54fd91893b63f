import { existsSync, readFileSync } from 'node:fs';

/** A file that `npm run build` has made in `dist/`; undefined if it has not. */
export function builtFile(name: string): Buffer | undefined {
  // Seen from this file, or from its source.
  const places = [new URL(`../${name}`, import.meta.url), new URL(`../../dist/${name}`, import.meta.url)];
  const found = places.find((one) => existsSync(one));
  return found && readFileSync(found);
}
