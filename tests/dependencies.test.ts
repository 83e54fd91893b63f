import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { packageOf, ROOT, readSources, type Source } from './harness/documents/sources.ts';

const isOfClient = ({ path }: Source) => path.startsWith('client/');
const all = readSources('src');
/** The client is a package of its own, which contains what it imports. */
const sources = all.filter((source) => !isOfClient(source));

describe('the dependencies', () => {
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
    devDependencies: Record<string, string>;
    peerDependencies: Record<string, string>;
  };
  const used = (files: readonly Source[], withTypes: boolean) =>
    new Set(
      files
        .flatMap(({ imports }) => imports)
        .filter(({ typesOnly }) => withTypes || !typesOnly)
        .map(({ target }) => (target.endsWith('.ts') ? target : packageOf(target))),
    );

  test('of production are exactly the packages that src/ imports, without the client', () => {
    const dependencies = Object.keys(manifest.dependencies);
    expect(dependencies.filter((name) => !used(sources, false).has(name))).toEqual([]);
    const packages = [...used(sources, true)].filter((name) => !/^node:|\.ts$/.test(name));
    const peers = Object.keys(manifest.peerDependencies);
    expect(packages.filter((name) => ![...dependencies, ...peers].includes(name))).toEqual([]);
    expect(peers.filter((name) => !packages.includes(name))).toEqual([]);
  });

  test('that are optional are loaded by nothing but import(), when they are needed', () => {
    const peers = Object.keys(manifest.peerDependencies);
    const loads = sources.flatMap(({ imports }) =>
      imports.filter(({ target, typesOnly }) => !typesOnly && peers.includes(packageOf(target))),
    );
    expect(loads.length).toBeGreaterThan(6);
    expect(loads.filter(({ late }) => !late)).toEqual([]);
  });

  test('are pinned to one version each', () => {
    const versions = Object.values({ ...manifest.dependencies, ...manifest.devDependencies });
    expect(versions.filter((version) => !/^(npm:.+@)?\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });
});

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
