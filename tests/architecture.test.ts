import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from '@jest/globals';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const STAGES = ['arrive', 'authenticate', 'guard', 'relay', 'watch'];

interface Import {
  /** A path such as `relay/carry-stream.ts` below its top folder, or the name of a package. */
  readonly target: string;
  /** True if nothing of it is left once the types are gone. */
  readonly typesOnly: boolean;
}

interface Source {
  readonly path: string;
  readonly text: string;
  /** The text without comments and without what strings hold. */
  readonly code: string;
  readonly imports: readonly Import[];
}

function read(top: string): Source[] {
  const folder = join(ROOT, top);
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((path) => {
      const text = readFileSync(join(folder, path), 'utf8');
      return { path, text, code: codeOf(text), imports: importsOf(text, join(folder, path), folder) };
    });
}

function codeOf(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '').replace(/'(?:[^'\\\n]|\\.)*'/g, "''");
}

function importsOf(text: string, file: string, folder: string): Import[] {
  const target = (name: string) =>
    name.startsWith('.') ? relative(folder, join(dirname(file), name)) : name;
  const fixed = text.matchAll(/^(?:import|export)\s+(type\s)?([^;'"]*?\sfrom\s+)?'([^']+)'/gm);
  const dynamic = text.matchAll(/\bimport\('([^']+)'\)/g);
  return [
    ...[...fixed].map(([, type, , name = '']) => ({ target: target(name), typesOnly: type !== undefined })),
    ...[...dynamic].map(([, name = '']) => ({ target: target(name), typesOnly: false })),
  ];
}

const sources = read('src');
const folderOf = (path: string) => path.split('/').at(-2) ?? '';
const linesOf = ({ text }: Source) => text.split('\n').length - 1;
const textOf = (path: string) => sources.find((source) => source.path === path)?.text;
/** The files whose code matches. */
const filesWith = (pattern: RegExp) =>
  sources.filter(({ code }) => pattern.test(code)).map(({ path }) => path);
/** Every import as `from → to`, of the files that `of` accepts. */
const importsWhere = (of: (source: Source, target: Import) => boolean) =>
  sources.flatMap((source) =>
    source.imports.filter((one) => of(source, one)).map(({ target }) => `${source.path} → ${target}`),
  );

describe('the reading of the sources', () => {
  test('finds them, and what they import', () => {
    expect(sources.length).toBeGreaterThan(30);
    expect(sources.find(({ path }) => path === 'serve.ts')?.imports).toEqual(
      expect.arrayContaining([
        { target: 'risks.ts', typesOnly: false },
        { target: 'worker-channel.ts', typesOnly: true },
        { target: 'demo/start-demo.ts', typesOnly: false },
      ]),
    );
    expect(sources.find(({ path }) => path === 'relay/stream-ending.ts')?.imports).toEqual(
      expect.arrayContaining([
        { target: 'express', typesOnly: true },
        { target: 'errors.ts', typesOnly: false },
      ]),
    );
  });
});

describe('one place only', () => {
  test('touches the environment, the signals and the exit of the process', () => {
    const starters = ['main.ts', 'run-command.ts', 'serve.ts'];
    expect(filesWith(/\bprocess\.(env|on|once|exit|exitCode|kill|argv)\b/).sort()).toEqual(starters);
    expect(filesWith(/\bprocess\.(exit|kill)\b/).sort()).toEqual(starters.slice(1));
    // Nor is `process` had in another way.
    expect(importsWhere((_, { target }) => /^(node:)?process$/.test(target))).toEqual([]);
    expect(filesWith(/\bglobalThis\b|\}\s*=\s*process\b|\bprocess\[/)).toEqual([]);
  });

  test('opens each kind of secret (O4)', () => {
    expect(filesWith(/\.open\(\)/).sort()).toEqual([
      // SESSION_SECRETS: for cookies of sessions, for sign-ins that are under way, and for probes of a check.
      'authenticate/attach-session.ts',
      // OIDC_CLIENT_SECRET.
      'authenticate/provider-metadata.ts',
      'authenticate/sign-in-flows.ts',
      'check/through-client.ts',
      'demo/start-demo.ts',
      'redis-address.ts',
      'redis.ts',
      'relay/upstream-request.ts',
      'watch/probe-tokens.ts',
    ]);
  });

  test('opens Redis', () => {
    const openers = importsWhere((_, { target, typesOnly }) => target === 'redis' && !typesOnly);
    expect(openers).toEqual(['redis.ts → redis']);
  });

  test('imports the check of a deployment: the relay itself does without it', () => {
    const isCheck = (path: string) => path.startsWith('check/');
    const importers = importsWhere(({ path }, { target }) => isCheck(target) && !isCheck(path));
    expect(new Set(importers)).toEqual(new Set(['run-command.ts → check/check-command.ts']));
    expect(textOf('run-command.ts')).not.toMatch(/^import .*check-command/m);
  });

  test('knows of workers: one alone does without a primary', () => {
    const isCluster = (path: string) => ['node:cluster', 'workers.ts', 'worker-channel.ts'].includes(path);
    const importers = importsWhere((_, { target, typesOnly }) => isCluster(target) && !typesOnly);
    expect([...new Set(importers)].sort()).toEqual([
      'serve.ts → worker-channel.ts',
      'serve.ts → workers.ts',
      'worker-channel.ts → node:cluster',
      'workers.ts → node:cluster',
      'workers.ts → worker-channel.ts',
    ]);
    expect(textOf('serve.ts')).not.toMatch(/^import (?!type\b).*worker/m);
  });

  test('imports the demo: it is loaded for the demo only', () => {
    const isDemo = (path: string) => path.startsWith('demo/');
    const importers = importsWhere(({ path }, { target }) => isDemo(target) && !isDemo(path));
    expect([...new Set(importers)].sort()).toEqual([
      'run-command.ts → demo/demo-bot.ts',
      'serve.ts → demo/start-demo.ts',
    ]);
    for (const path of ['run-command.ts', 'serve.ts']) expect(textOf(path)).not.toMatch(/^import .*demo/m);
  });
});

describe('the direction of imports', () => {
  test('begins with nothing that another Node.js could fail to load', () => {
    expect(importsWhere(({ path }) => path === 'main.ts')).toEqual([
      'main.ts → node:fs',
      'main.ts → run-command.ts',
    ]);
    expect(textOf('main.ts')).not.toMatch(/^import .*run-command/m);
  });

  test('is never from one stage to another, types aside', () => {
    expect(
      importsWhere(
        ({ path }, { target, typesOnly }) =>
          STAGES.includes(folderOf(path)) &&
          !typesOnly &&
          target.includes('/') &&
          STAGES.includes(folderOf(target)) &&
          folderOf(target) !== folderOf(path),
      ),
    ).toEqual([]);
  });

  test('is never from a stage to what builds it', () => {
    const builders = [
      'main.ts',
      'run-command.ts',
      'serve.ts',
      'instance.ts',
      'app.ts',
      'server.ts',
      'stores.ts',
      'config.ts',
      'config-variables.ts',
    ];
    expect(
      importsWhere(
        ({ path }, { target, typesOnly }) =>
          STAGES.includes(folderOf(path)) &&
          builders.includes(target) &&
          !(typesOnly && target === 'config.ts'),
      ),
    ).toEqual([]);
  });

  test('keeps sessions and Redis out of relay/', () => {
    expect(
      importsWhere(
        ({ path }, { target }) =>
          folderOf(path) === 'relay' &&
          (folderOf(target) === 'authenticate' || /^redis|^connect-redis$|^express-session$/.test(target)),
      ),
    ).toEqual([]);
  });

  test('never goes round in a circle', () => {
    const known = new Map(sources.map((source) => [source.path, source]));
    const done = new Set<string>();
    const circleFrom = (path: string, way: readonly string[]): readonly string[] | undefined => {
      if (way.includes(path)) return [...way.slice(way.indexOf(path)), path];
      if (done.has(path)) return undefined;
      for (const { target } of known.get(path)?.imports ?? []) {
        const circle = known.has(target) ? circleFrom(target, [...way, path]) : undefined;
        if (circle) return circle;
      }
      done.add(path);
      return undefined;
    };
    expect(sources.map(({ path }) => circleFrom(path, [])).find(Boolean)).toBeUndefined();
    expect(done.size).toBe(sources.length);
  });
});

describe('the style', () => {
  test('keeps files short', () => {
    expect(sources.filter((source) => linesOf(source) > 250).map(({ path }) => path)).toEqual([]);
    const lengths = sources.map(linesOf).sort((a, b) => a - b);
    expect(lengths[Math.floor(lengths.length / 2)]).toBeLessThan(80);
  });

  test('knows no any, no default export and no name but in kebab case', () => {
    expect(filesWith(/(:|\bas|<|\|)\s*any\b|\bany\[\]/)).toEqual([]);
    expect(filesWith(/^export default\b|\bas default\b/m)).toEqual([]);
    expect(sources.filter(({ path }) => !/^([a-z0-9-]+\/)?[a-z0-9-]+\.ts$/.test(path))).toEqual([]);
  });
});

/** The lowest version in a range of npm that consists of `>=` and `^`, joined by `||`. */
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
    peerDependencies: Record<string, string>;
    engines: { node: string };
  };
  const used = (files: readonly Source[], withTypes: boolean) =>
    new Set(
      files
        .flatMap(({ imports }) => imports)
        .filter(({ typesOnly }) => withTypes || !typesOnly)
        .map(({ target }) => target.match(/^(@[^/]+\/)?[^/]+/)?.[0] ?? ''),
    );

  test('of the relay are all imported by it, and what it imports is among them', () => {
    const dependencies = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies });
    expect(dependencies.filter((name) => !used(sources, false).has(name))).toEqual([]);
    const packages = importsWhere((_, { target }) => !target.startsWith('node:') && !target.endsWith('.ts'));
    expect(packages.filter((one) => !dependencies.includes(one.split(' → ')[1] ?? ''))).toEqual([]);
  });

  test('of its making are tools, types of packages that are there, or imported by tests or benchmarks', () => {
    /** What runs from the command line, or is loaded by such a tool. */
    const tools = ['@biomejs/biome', '@swc/core', '@swc/jest', 'jest', 'node', 'typescript', '@types/node'];
    /** What is bundled into the pages of tests, or read by the compiler there. */
    const ofPages = ['react', 'react-18', 'react-dom-18', 'types-react-18'];
    const inTests = new Set([...used(read('tests'), true), ...used(read('bench'), true)]);
    const names = Object.keys(manifest.devDependencies);
    const typed = (name: string) =>
      name.startsWith('@types/') &&
      names.concat(Object.keys(manifest.dependencies)).includes(name.slice('@types/'.length));
    expect(
      names.filter((name) => ![...tools, ...ofPages].includes(name) && !typed(name) && !inTests.has(name)),
    ).toEqual([]);
  });

  test('ask for the Node.js that the relay asks for: the one with the highest demand says which', () => {
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
    const highest = ranges.reduce((one, other) => (order(least(one), least(other)) < 0 ? other : one));
    expect(manifest.engines.node).toBe(highest);
    // And each of the lines of Node.js that it lets in is one for all.
    for (const part of highest.split('||'))
      expect(ranges.filter((range) => !accepts(range, least(part)))).toEqual([]);
  });

  test('are pinned to one version each', () => {
    const versions = Object.values({ ...manifest.dependencies, ...manifest.devDependencies });
    expect(versions.filter((version) => !/^(npm:.+@)?\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });
});
