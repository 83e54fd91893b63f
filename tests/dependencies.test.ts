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
    expect(packages.filter((name) => !dependencies.includes(name))).toEqual([]);
  });

  test('are pinned to one version each', () => {
    const versions = Object.values({ ...manifest.dependencies, ...manifest.devDependencies });
    expect(versions.filter((version) => !/^(npm:.+@)?\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });
});
