import { readFileSync } from 'node:fs';
import { describe, expect, test } from '@jest/globals';

interface Entry {
  readonly integrity?: string;
  readonly link?: boolean;
  readonly inBundle?: boolean;
  readonly resolved?: string;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const lock = JSON.parse(readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8')) as {
  readonly packages: Readonly<Record<string, Entry>>;
};
const entries = Object.entries(lock.packages).filter(([path]) => path !== '');

/** Whether Node.js would find the package `name` from the folder `path`. */
function isFound(name: string, path: string): boolean {
  const folders = [
    path,
    ...[...path.matchAll(/\/?node_modules\//g)].map(({ index }) => path.slice(0, index)),
  ];
  return folders.some((folder) => `${folder ? `${folder}/` : ''}node_modules/${name}` in lock.packages);
}

describe('package-lock.json', () => {
  test('has an entry for every optional dependency of every platform', () => {
    const wanted = entries.flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).map((name) => ({ path, name })),
    );
    expect(wanted.length).toBeGreaterThan(50);
    expect(wanted.filter(({ path, name }) => !isFound(name, path))).toEqual([]);
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
