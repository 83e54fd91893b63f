import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import type { Consumer } from '../harness/clients/consumer.ts';
import { compileIn, PAGE, typedConsumer } from '../harness/clients/typed-consumer.ts';
import { ROOT, readSources } from '../harness/documents/sources.ts';

// The compilers are slow on a busy machine.
jest.setTimeout(90_000);

let consumer: Consumer;
beforeAll(() => {
  consumer = typedConsumer();
});
afterAll(() => consumer.remove());

describe('the package', () => {
  const manifest = () =>
    JSON.parse(
      readFileSync(join(consumer.folder, 'node_modules/bot-relay-client/package.json'), 'utf8'),
    ) as Record<string, unknown>;

  test("has four entries, the relay's version, and needs no other package", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect(manifest()).toMatchObject({
      name: 'bot-relay-client',
      version,
      type: 'module',
      sideEffects: ['./element.js'],
    });
    expect(Object.keys(manifest().exports as object)).toEqual([
      '.',
      './react',
      './element',
      './ai-sdk',
      './package.json',
    ]);
    expect(manifest()).not.toHaveProperty('dependencies');
    expect(manifest()).toMatchObject({
      peerDependencies: { react: '>=18' },
      peerDependenciesMeta: { react: { optional: true } },
    });
  });

  test('exports the same RelayError from each entry, finds one channel from both that make it, and loads on a server', () => {
    const program = `
      const names = ['', '/react', '/ai-sdk', '/element'];
      const [main, react, sdk, element] = await Promise.all(names.map((name) => import('bot-relay-client' + name)));
      for (const entry of [main, react, sdk, element]) console.log(Object.keys(entry).sort().join());
      const client = main.createBotClient({ baseUrl: 'http://127.0.0.1:9', bot: 'ns/bot' });
      const isOne = main.createChannel(client, { id: 'one' }) === react.createChannel(client, { id: 'one' });
      console.log(main.RelayError === react.RelayError, main.RelayError === sdk.RelayError, isOne);`;
    const args = ['--input-type=module', '-e', program];
    const printed = execFileSync(process.execPath, args, { cwd: consumer.folder, encoding: 'utf8' });
    expect(printed.trim().split('\n')).toEqual([
      'RelayError,createBotClient,createChannel,textOf',
      'BotChat,BotProvider,RelayError,createBotClient,createChannel,textOf,useBot,useBotClient,useSession',
      'RelayError,botChatTransport,loadMessages',
      'BotChatElement',
      'true true true',
    ]);
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

  test('has no file that is loaded for nothing', () => {
    const own = join(consumer.folder, 'node_modules/bot-relay-client');
    const files = readdirSync(own).filter((name) => name.endsWith('.js'));
    const text = (name: string) => readFileSync(join(own, name), 'utf8');
    for (const name of files) {
      expect([
        name,
        text(name)
          .replace(/^import [^;]*;$|^\s*\/\/.*$/gm, '')
          .trim(),
      ]).not.toEqual([name, '']);
      // A chunk of which nothing is used.
      expect([name, text(name).match(/^import "[^"]*";$/gm)]).toEqual([name, null]);
    }
    expect(files.length).toBeGreaterThan(4);
  });
});

/** What a page loads that uses these exports. */
function bundled(contents: string) {
  const { metafile, outputFiles } = buildSync({
    stdin: { contents, resolveDir: consumer.folder },
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    external: ['react', '*/element.js'],
    logLevel: 'error',
    metafile: true,
    write: false,
    outdir: consumer.folder,
    absWorkingDir: ROOT,
  });
  const text = String(outputFiles?.[0]?.text);
  return { text, metafile };
}

describe('in a page', () => {
  const CLIENT = "export { createBotClient } from 'bot-relay-client';";

  test('the client needs nothing of Node.js, and the transport of the AI SDK no upload', () => {
    const { text, metafile } = bundled(CLIENT);
    expect(Object.values(metafile?.outputs ?? {}).flatMap(({ imports }) => imports)).toEqual([]);
    expect(text).not.toMatch(/\brequire\(|\bprocess\.|\bBuffer\b/);
    const transport = bundled(`${CLIENT} export { botChatTransport } from 'bot-relay-client/ai-sdk';`);
    expect(transport.text).not.toContain('XMLHttpRequest');
  });

  test('the entry of React says that it is for the client, and loads the entry of the element', () => {
    const entry = readFileSync(join(consumer.folder, 'node_modules/bot-relay-client/react.js'), 'utf8');
    expect(entry).toMatch(/^"use client";/);
    expect(entry.match(/\bimport\(.*?\)/g)).toEqual(['import("./element.js")']);
  });

  test('the element is kept, though nothing is taken from its entry', () => {
    expect(bundled("import 'bot-relay-client/element';").text).toMatch(/customElements\.define\(/);
  });

  test('an entry that is loaded for nothing is left out', () => {
    expect(
      bundled("import 'bot-relay-client'; import 'bot-relay-client/react'; import 'bot-relay-client/ai-sdk';")
        .text,
    ).toBe('');
  });
});

describe('the file of the element', () => {
  const file = readFileSync(join(ROOT, 'dist/bot-chat/bot-chat.js'), 'utf8');

  test('needs no other file at once', () => {
    expect(file).not.toMatch(/(^|[;}])(import|export)[^(;]*"\.\//);
    expect(file.match(/import\("[^"]*"\)/g)).toHaveLength(3);
  });

  test('names the file beside it with the licenses of what it contains', () => {
    expect(file).toMatch(/Licenses of what it contains: bot-chat\.txt/);
    const notices = readFileSync(join(ROOT, 'dist/bot-chat/bot-chat.txt'), 'utf8');
    for (const [name, license] of [
      ['marked', 'LICENSE'],
      ['eventsource-parser', 'LICENSE'],
      ['katex', 'LICENSE'],
      ['lowlight', 'license'],
      // Of the version that lowlight has.
      ['lowlight/node_modules/highlight.js', 'LICENSE'],
    ] as const) {
      const folder = join(ROOT, 'node_modules', name);
      const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
        version: string;
      };
      expect(notices).toContain(`It contains ${name.split('/').at(-1)} ${version}:`);
      expect(notices).toContain(readFileSync(join(folder, license), 'utf8').trim());
    }
  });
});

test('the types of the package are valid, and refuse each mistake, in a strict project', async () => {
  // All other projects and compilers are proved: client-package.proof.ts.
  const compiled = await compileIn(consumer, PAGE, { name: 'page' });
  // A compiler that does not run finds no mistake either.
  expect(compiled).toEqual({ found: '', fault: '', status: 0 });
});

/** What Chrome 123, Firefox 128 or Safari 17.5 lacks, with the first versions that have it (MDN's compatibility data). */
const NEWER: Readonly<Record<string, RegExp>> = {
  'a stream in a loop: Chrome 124, Safari 27': /\bfor await\s*\([^)]*\bbody\b/,
  'Promise.try: Firefox 134, Safari 18.2': /\bPromise\.try\b/,
  'methods of iterators: Chrome 122, Firefox 131, Safari 18.4':
    /(?<!")\bIterator\b|(?<!\bObject)\.(?:keys|values|entries|matchAll)\([^()]*\)\.(?!next\b)\w+\(/,
  'URL.parse: Chrome 126, Safari 18': /\bURL\.parse\b/,
  'bytes of a body, and base64: Chrome 132, Firefox 128, Safari 18':
    /\.(?:bytes|toBase64|fromBase64|toHex)\(/,
  'requestIdleCallback: no Safari': /\brequestIdleCallback\b/,
  'scheduler: Firefox 142, no Safari': /\bscheduler\./,
  'startViewTransition: Firefox 144, Safari 18': /\bstartViewTransition\b/,
};

/** The same of style sheets, where a rule that a browser does not know is left out. */
const NEWER_STYLE: Readonly<Record<string, RegExp>> = {
  '@scope, @starting-style: Chrome 118, Firefox 146, Safari 26.4': /@scope|@starting-style/,
};

const foundIn = (newer: typeof NEWER, files: readonly { readonly path: string; readonly text: string }[]) =>
  files.flatMap(({ path, text }) =>
    Object.entries(newer).flatMap(([what, pattern]) => (pattern.test(text) ? [`${path}: ${what}`] : [])),
  );

describe('the oldest browsers that the documents name', () => {
  test('have all that the client and its libraries use', () => {
    const names = readdirSync(join(ROOT, 'dist/client')).filter((name) => name.endsWith('.js'));
    const files = names.map((path) => ({
      path,
      text: readFileSync(join(ROOT, 'dist/client', path), 'utf8').replace(
        /^ *\/\/.*$|\/\*[\s\S]*?\*\//gm,
        '',
      ),
    }));
    expect(files.length).toBeGreaterThan(4);
    expect(foundIn(NEWER, files)).toEqual([]);
  });

  test('understand the style sheet of the chat', () => {
    const sources = readSources('src/client/element/style');
    expect(sources.length).toBeGreaterThan(4);
    expect(foundIn(NEWER_STYLE, sources)).toEqual([]);
  });
});
