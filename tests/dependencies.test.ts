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
