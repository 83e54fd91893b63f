import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import { compile } from '../support/compile.ts';
import { type Consumer, makeConsumer } from '../support/consumer.ts';
import { COMPONENT, MISTAKES, PROGRAM } from '../support/consumer-programs.ts';
import { testSideBySide } from '../support/side-by-side.ts';

// The compiler is slow on a busy machine.
jest.setTimeout(90_000);

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LIST = `console.log(Object.keys(await import('bot-relay/client')).sort().join());`;
const listIn = (cwd: string) =>
  execFileSync(process.execPath, ['--input-type=module', '-e', LIST], { cwd, encoding: 'utf8' });

/** One project for each version of React; the package has been installed in both. */
const FOLDERS = { '18': 'react-18', '19': 'react-19' } as const;
const WRONG = `import { useBot, type UseBotOptions } from 'bot-relay/react';
export function wrong(options: UseBotOptions) {
${MISTAKES.map((mistake) => `// @ts-expect-error\n${mistake};`).join('\n')}
}
`;

let consumer: Consumer;
beforeAll(() => {
  // No other dependency of the relay is installed.
  consumer = makeConsumer(['eventsource-parser', '@types/node', 'undici-types']);
  const { folder } = consumer;
  for (const [react, name] of Object.entries(FOLDERS)) {
    const modules = join(folder, name, 'node_modules');
    mkdirSync(join(modules, '@types'), { recursive: true });
    cpSync(join(folder, 'node_modules/bot-relay'), join(modules, 'bot-relay'), { recursive: true });
    const types = react === '18' ? 'types-react-18' : '@types/react';
    symlinkSync(join(ROOT, 'node_modules', types), join(modules, '@types/react'));
    consumer.write({
      [`${name}/package.json`]: JSON.stringify({ type: 'module' }),
      [`${name}/page.ts`]: PROGRAM,
      [`${name}/chat.tsx`]: COMPONENT,
      [`${name}/wrong.tsx`]: WRONG,
    });
  }
});
afterAll(() => consumer.remove());

describe('bot-relay/client', () => {
  test("is found by the package's own name", () => {
    expect(listIn(ROOT)).toBe('RelayError,createBotClient\n');
  });

  test('is found where the package is installed', () => {
    expect(listIn(consumer.folder)).toBe('RelayError,createBotClient\n');
  });

  test('is under 6144 bytes bundled, minified and compressed, and needs nothing but eventsource-parser', () => {
    const { metafile, outputFiles } = buildSync({
      stdin: { contents: "export * from 'bot-relay/client';", resolveDir: consumer.folder },
      bundle: true,
      minify: true,
      format: 'esm',
      platform: 'browser',
      metafile: true,
      write: false,
      outdir: consumer.folder,
      absWorkingDir: ROOT,
    });
    const [bundle] = outputFiles;
    expect(gzipSync(bundle?.contents ?? '').length).toBeLessThan(6144);
    const packages = Object.keys(metafile.inputs).flatMap(
      (path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
    );
    expect([...new Set(packages)].sort()).toEqual(['bot-relay', 'eventsource-parser']);
    const imported = Object.values(metafile.outputs).flatMap(({ imports }) => imports);
    expect(imported).toEqual([]);
    expect(String(bundle?.text)).not.toMatch(/\brequire\(|\bprocess\.|\bBuffer\b/);
  });
});

const STRICT = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noImplicitOverride: true,
  noUnusedLocals: true,
  noPropertyAccessFromIndexSignature: true,
  isolatedModules: true,
  verbatimModuleSyntax: true,
  skipLibCheck: false,
  noEmit: true,
  jsx: 'react-jsx',
  target: 'es2022',
};
const BUNDLER = { module: 'esnext', moduleResolution: 'bundler' };
const NODE = { module: 'nodenext', moduleResolution: 'nodenext' };

/** How a module is found does not depend on the version of React, so each of both is compiled once. */
const PROJECTS = [
  [
    'in a page with React 19, without the types of Node',
    '19',
    { ...BUNDLER, lib: ['es2022', 'dom', 'dom.iterable'], types: [] },
    ['page.ts', 'chat.tsx', 'wrong.tsx'],
  ],
  [
    'in Node, without the types of browsers and of React',
    '19',
    { ...NODE, lib: ['es2022'], types: ['node'] },
    ['page.ts'],
  ],
  [
    'with the types of Node and of browsers, and React 18',
    '18',
    { ...NODE, lib: ['es2022', 'dom', 'dom.iterable'], types: ['node'] },
    ['page.ts', 'chat.tsx', 'wrong.tsx'],
  ],
] as const;

async function expectNoMistake([title, react, options, files]: (typeof PROJECTS)[number]): Promise<void> {
  const compilerOptions = { ...STRICT, ...options };
  const config = join(FOLDERS[react], `tsconfig-${title.length}.json`);
  consumer.write({ [config]: JSON.stringify({ compilerOptions, files }) });
  // A compiler that does not run finds no mistake either.
  expect(await compile(join(consumer.folder, config))).toEqual({ found: '', fault: '', status: 0 });
}

describe('the types of the package are valid, and refuse each mistake, in a strict project', () => {
  testSideBySide(PROJECTS.map((project) => [project[0], () => expectNoMistake(project)]));
});
