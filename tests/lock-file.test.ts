import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { ROOT } from './harness/documents/sources.ts';

interface Entry {
  readonly version?: string;
  readonly integrity?: string;
  readonly resolved?: string;
  readonly link?: boolean;
  readonly inBundle?: boolean;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}
type Packages = Readonly<Record<string, Entry>>;

/** The entries of a lock file, without the project itself. */
function packagesIn(folder: string): Packages {
  const { packages } = JSON.parse(readFileSync(join(ROOT, folder, 'package-lock.json'), 'utf8'));
  const { '': _project, ...others } = packages as Packages;
  return others;
}

/** Whether Node.js would find the package `name` from the folder `path`. */
function isFound(packages: Packages, name: string, path: string): boolean {
  const folders = [
    path,
    ...[...path.matchAll(/\/?node_modules\//g)].map(({ index }) => path.slice(0, index)),
  ];
  return folders.some((folder) => `${folder ? `${folder}/` : ''}node_modules/${name}` in packages);
}

describe.each(['.', 'bench', 'build/reference', 'build/release'])('package-lock.json in %s', (folder) => {
  const packages = packagesIn(folder);
  const entries = Object.entries(packages);

  test('has an entry for every optional dependency of every platform', () => {
    const wanted = entries.flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).map((name) => ({ path, name })),
    );
    if (folder === '.') expect(wanted.length).toBeGreaterThan(50);
    expect(wanted.filter(({ path, name }) => !isFound(packages, name, path))).toEqual([]);
  });

  test('has the checksum of every package', () => {
    const unchecked = entries.filter(
      ([, { link, inBundle, integrity }]) => !link && !inBundle && !/^sha512-/.test(integrity ?? ''),
    );
    expect(unchecked.map(([path]) => path)).toEqual([]);
  });

  test('names no registry', () => {
    expect(entries.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
  });
});
