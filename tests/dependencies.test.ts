import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { packageOf, ROOT, readSources, type Source } from './support/sources.ts';

const isOfClient = ({ path }: Source) => path.startsWith('client/');
const all = readSources('src');
/** The client is a package of its own, which contains what it imports. */
const sources = all.filter((source) => !isOfClient(source));

/** The lowest version in an npm range that consists of `>=` and `^`, joined by `||`. */
function least(range: string): number[] {
  const parts = range.split('||').map((part) => {
    if (!/^\s*(>=|\^)\s*\d+(\.(\d+|x)){0,2}\s*$/.test(part)) throw new Error(`not understood: ${range}`);
    return (part.match(/\d+/g) ?? []).map(Number);
  });
  return parts.sort(order)[0] as number[];
}

function order(one: readonly number[], other: readonly number[]): number {
  const at = [0, 1, 2].find((index) => (one[index] ?? 0) !== (other[index] ?? 0)) ?? 0;
  return (one[at] ?? 0) - (other[at] ?? 0);
}

function accepts(range: string, version: readonly number[]): boolean {
  return range
    .split('||')
    .some(
      (part) => order(least(part), version) <= 0 && !(part.includes('^') && least(part)[0] !== version[0]),
    );
}

describe('the dependencies', () => {
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
    devDependencies: Record<string, string>;
    engines: { node: string };
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

  test('of development are tools, types, or imported by the client, tests or benchmarks', () => {
    /** Tools of the command line, and packages that they load. */
    const tools = [
      '@arethetypeswrong/cli',
      '@biomejs/biome',
      '@jest/test-sequencer',
      '@swc/core',
      '@swc/jest',
      'jest',
      'jest-environment-node',
      'node',
      'pnpm',
      'typescript',
      'typescript-5.4',
      'typescript-6',
      '@types/node',
    ];
    /** Packages that are bundled into the pages of tests, or read by the compiler there. */
    const ofPages = ['react', 'react-18', 'react-dom', 'react-dom-18', 'types-react-18'];
    const importing = [...all.filter(isOfClient), ...readSources('tests'), ...readSources('bench')];
    const imported = used(importing, true);
    const names = Object.keys(manifest.devDependencies);
    const typed = (name: string) =>
      name.startsWith('@types/') &&
      names.concat(Object.keys(manifest.dependencies)).includes(name.slice('@types/'.length));
    expect(
      names.filter((name) => ![...tools, ...ofPages].includes(name) && !typed(name) && !imported.has(name)),
    ).toEqual([]);
  });

  test('run on every Node.js of `engines`, whose lowest version they need', () => {
    const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
      packages: Record<string, { dev?: boolean }>;
    };
    const ranges = Object.entries(lock.packages)
      .filter(([path, { dev }]) => path !== '' && !dev)
      .map(([path]) => join(ROOT, path, 'package.json'))
      .filter((file) => existsSync(file))
      .map((file) => JSON.parse(readFileSync(file, 'utf8')) as { engines?: { node?: string } })
      .flatMap(({ engines }) => engines?.node ?? []);
    expect(ranges.length).toBeGreaterThan(50);
    const lowest = ranges.map(least).sort(order).at(-1) as number[];
    expect(order(least(manifest.engines.node), lowest)).toBe(0);
    // Every line of Node.js in `engines` is allowed by all dependencies, and they name no other line.
    const lines = (range: string) => range.split('||').map(least);
    for (const line of lines(manifest.engines.node))
      expect(ranges.filter((range) => !accepts(range, line))).toEqual([]);
    const named = ranges.flatMap(lines).filter((line) => order(line, lowest) > 0);
    const open = named.filter((line) => ranges.every((range) => accepts(range, line)));
    expect(open.filter((line) => !accepts(manifest.engines.node, line))).toEqual([]);
  });

  test('are pinned to one version each', () => {
    const versions = Object.values({ ...manifest.dependencies, ...manifest.devDependencies });
    expect(versions.filter((version) => !/^(npm:.+@)?\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });
});
