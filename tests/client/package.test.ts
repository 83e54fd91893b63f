import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { type BuildOptions, buildSync } from 'esbuild';
import { publint } from 'publint';
import { type Compiler, compile } from '../support/compile.ts';
import { type Consumer, makeConsumer, TARBALL } from '../support/consumer.ts';
import { COMPONENT, MISTAKES, PROGRAM } from '../support/consumer-programs.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { ROOT } from '../support/sources.ts';

// The compilers are slow on a busy machine.
jest.setTimeout(90_000);

/** One project for each version of React; the package has been installed in both. */
const FOLDERS = { '18': 'react-18', '19': 'react-19' } as const;
const WRONG = `import { useBot, type UseBotOptions } from 'bot-relay-client/react';
export function wrong(options: UseBotOptions) {
${MISTAKES.map((mistake) => `// @ts-expect-error\n${mistake};`).join('\n')}
}
`;

const DOCUMENT = readFileSync(join(ROOT, 'docs/front-end.md'), 'utf8');
/** What the document says of events of one's own. */
const [, EVENTS = ''] = /```ts\n([\s\S]*?)```/.exec(DOCUMENT) ?? [];

let consumer: Consumer;
beforeAll(() => {
  consumer = makeConsumer(['@types/node', 'undici-types', 'react']);
  const { folder } = consumer;
  for (const [react, name] of Object.entries(FOLDERS)) {
    const modules = join(folder, name, 'node_modules');
    mkdirSync(join(modules, '@types'), { recursive: true });
    cpSync(join(folder, 'node_modules/bot-relay-client'), join(modules, 'bot-relay-client'), {
      recursive: true,
    });
    const types = react === '18' ? 'types-react-18' : '@types/react';
    symlinkSync(join(ROOT, 'node_modules', types), join(modules, '@types/react'));
    consumer.write({
      [`${name}/package.json`]: JSON.stringify({ type: 'module' }),
      [`${name}/page.ts`]: PROGRAM,
      [`${name}/chat.tsx`]: COMPONENT,
      [`${name}/wrong.tsx`]: WRONG,
      [`${name}/events.ts`]: EVENTS,
    });
  }
});
afterAll(() => consumer.remove());

/** What a program in the project prints. */
const printed = (program: string) =>
  execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    cwd: consumer.folder,
    encoding: 'utf8',
  }).trim();

describe('the package', () => {
  const manifest = () =>
    JSON.parse(
      readFileSync(join(consumer.folder, 'node_modules/bot-relay-client/package.json'), 'utf8'),
    ) as Record<string, unknown>;

  test("has two entries, the relay's version, and needs no other package", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect(manifest()).toMatchObject({
      name: 'bot-relay-client',
      version,
      type: 'module',
      sideEffects: false,
    });
    expect(Object.keys(manifest().exports as object)).toEqual(['.', './react', './package.json']);
    expect(manifest()).not.toHaveProperty('dependencies');
    expect(manifest()).toMatchObject({
      peerDependencies: { react: '>=18' },
      peerDependenciesMeta: { react: { optional: true } },
    });
  });

  test('exports the same RelayError from each entry', () => {
    expect(printed("console.log(Object.keys(await import('bot-relay-client')).sort().join());")).toBe(
      'RelayError,createBotClient',
    );
    const ofBoth = `
      const [{ RelayError }, react] = await Promise.all([import('bot-relay-client'), import('bot-relay-client/react')]);
      const error = new RelayError('No.', { code: 'unreachable', status: 0 });
      console.log(Object.keys(react).sort().join(), error instanceof react.RelayError);`;
    expect(printed(ofBoth)).toBe('RelayError,useBot true');
  });

  test('has the notice of the library that it contains', () => {
    const own = join(consumer.folder, 'node_modules/bot-relay-client');
    const library = join(ROOT, 'node_modules/eventsource-parser');
    const { version } = JSON.parse(readFileSync(join(library, 'package.json'), 'utf8')) as {
      version: string;
    };
    const notices = readFileSync(join(own, 'NOTICES.txt'), 'utf8');
    expect(notices).toContain(`eventsource-parser ${version}`);
    expect(notices).toContain(readFileSync(join(library, 'LICENSE'), 'utf8'));
    expect(readFileSync(join(own, 'LICENSE'), 'utf8')).toBe(readFileSync(join(ROOT, 'LICENSE'), 'utf8'));
  });

  test('is found by publint to be well made', async () => {
    const tarball = Uint8Array.from(readFileSync(TARBALL)).buffer;
    const { messages } = await publint({ pack: { tarball }, strict: true });
    expect(messages).toEqual([]);
  });

  test('has types where each module is, also in the eyes of attw', () => {
    const attw = join(ROOT, 'node_modules/@arethetypeswrong/cli/dist/index.js');
    const { status, stdout } = spawnSync(
      process.execPath,
      [attw, TARBALL, '--profile', 'esm-only', '--no-color'],
      { encoding: 'utf8' },
    );
    expect([status, stdout]).toEqual([0, expect.stringContaining('"bot-relay-client/react"')]);
  });
});

/** What a page loads that uses these exports, minified, and its bytes in gzip. */
function bundled(contents: string, options: BuildOptions = {}) {
  const { metafile, outputFiles } = buildSync({
    stdin: { contents, resolveDir: consumer.folder },
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    external: ['react'],
    logLevel: 'error',
    metafile: true,
    write: false,
    outdir: consumer.folder,
    absWorkingDir: ROOT,
    ...options,
  });
  const text = String(outputFiles?.[0]?.text);
  return { text, metafile, bytes: gzipSync(text, { level: 9 }).length };
}

describe('in a page', () => {
  const CLIENT = "export { createBotClient } from 'bot-relay-client';";

  test('the client is at most 6.5 KiB, and needs nothing of Node.js', () => {
    const { text, metafile, bytes } = bundled(CLIENT);
    expect(bytes).toBeLessThanOrEqual(6656);
    expect(Object.values(metafile?.outputs ?? {}).flatMap(({ imports }) => imports)).toEqual([]);
    expect(text).not.toMatch(/\brequire\(|\bprocess\.|\bBuffer\b/);
  });

  test('the hook is at most 1.5 KiB more than the conversation that it shows, and that at most 3 KiB more', () => {
    const resolveDir = join(ROOT, 'src/client');
    const ofSource = (...names: readonly string[]) =>
      bundled('', {
        stdin: { contents: names.map((name) => `export * from './${name}.ts';`).join(''), resolveDir },
      }).bytes;
    const conversation = ofSource('bot-client', 'conversation');
    expect(ofSource('bot-client', 'conversation', 'use-bot') - conversation).toBeLessThanOrEqual(1536);
    const hook = bundled("export { useBot } from 'bot-relay-client/react';").bytes;
    expect(hook - bundled(CLIENT).bytes).toBeLessThanOrEqual(3072);
  });

  test('an entry that is loaded for nothing is left out', () => {
    expect(bundled("import 'bot-relay-client'; import 'bot-relay-client/react';").text).toBe('');
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
  // Only the compiler's own.
  skipDefaultLibCheck: true,
  noEmit: true,
  jsx: 'react-jsx',
  target: 'es2022',
};
const BUNDLER = { module: 'esnext', moduleResolution: 'bundler' };
const NODE = { module: 'nodenext', moduleResolution: 'nodenext' };
const DOM = { lib: ['es2022', 'dom', 'dom.iterable'] };
const ALL = ['page.ts', 'chat.tsx', 'wrong.tsx', 'events.ts'];

interface Project {
  readonly react: keyof typeof FOLDERS;
  readonly options: object;
  readonly files: readonly string[];
}

const PAGE: Project = { react: '19', options: { ...BUNDLER, ...DOM, types: [] }, files: ALL };
const NODE_PAGE: Project = { react: '18', options: { ...NODE, ...DOM, types: [] }, files: ALL };
/** Older compilers take seconds, and most of them for the types of React. */
const NODE_ALONE: Project = { ...NODE_PAGE, files: ['page.ts'] };
/** How a module is found does not depend on the version of React, so each of both is compiled once. */
const PROJECTS: readonly (readonly [title: string, project: Project, compiler?: Compiler])[] = [
  ['in a page with React 19, without the types of Node', PAGE],
  ['with the modules of Node, and React 18', NODE_PAGE],
  [
    'in Node, without the types of browsers and of React',
    { react: '19', options: { ...NODE, lib: ['es2022'], types: ['node'] }, files: ['page.ts'] },
  ],
  ['in a page, for TypeScript 6', PAGE, 'typescript-6'],
  ['with the modules of Node, for TypeScript 6', NODE_ALONE, 'typescript-6'],
  ['in a page, for TypeScript 5.4', PAGE, 'typescript-5.4'],
  ['with the modules of Node, for TypeScript 5.4', NODE_ALONE, 'typescript-5.4'],
];

async function expectNoMistake(name: string, project: Project, compiler?: Compiler): Promise<void> {
  const { react, options, files } = project;
  const config = join(FOLDERS[react], `tsconfig-${name}.json`);
  consumer.write({ [config]: JSON.stringify({ compilerOptions: { ...STRICT, ...options }, files }) });
  // A compiler that does not run finds no mistake either.
  const compiled = await compile(join(consumer.folder, config), compiler);
  expect(compiled).toEqual({ found: '', fault: '', status: 0 });
}

describe('the types of the package are valid, and refuse each mistake, in a strict project', () => {
  test('also for the events that the document adds', () => {
    expect(EVENTS).toContain("declare module 'bot-relay-client'");
  });

  testSideBySide(
    PROJECTS.map(([title, project, compiler], at) => [
      title,
      () => expectNoMistake(String(at), project, compiler),
    ]),
  );
});
