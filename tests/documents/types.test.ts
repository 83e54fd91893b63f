import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { compile } from '../harness/clients/compile.ts';
import { type Consumer, makeConsumer } from '../harness/clients/consumer.ts';
import { ROOT } from '../harness/documents/sources.ts';

// The compiler is slow on a busy machine.
jest.setTimeout(90_000);

/** The snippets of frameworks that are not among our packages. */
const FOREIGN = ['solid', 'angular', 'assistant-ui'];
const DOCUMENTS = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs/front-end')).map((name) => `docs/front-end/${name}`),
  ...['docs/sign-in.md', 'docs/http.md', 'docs/service.md'],
];
/** What a page has around the snippets. */
const AROUND = `
declare function show(text: string): void;
declare function showSignIn(): void;
declare function showError(message: string, error?: Error): void;
declare function showMessages(texts: readonly string[]): void;
declare function showStatus(status: string, error?: Error): void;
declare const form: HTMLFormElement;
declare const username: string;
declare const password: string;
declare const key: string;
`;
/** In a page, \`name\` is another global. */
const FROM_FORM = "const name = 'ada';\n";

/**
 * The snippets of the documents, as files. The operations go on from the snippet with fetch. The configurations of
 * Vite and Next are those of the examples, which are compiled with them.
 */
function snippets(): Record<string, string> {
  const files: Record<string, string> = {};
  for (const document of DOCUMENTS) {
    const text = readFileSync(join(ROOT, document), 'utf8');
    const scripts = text.matchAll(/```html\n[\s\S]*?<script type="module">\n([\s\S]*?)<\/script>/g);
    for (const [, code = ''] of scripts) files[`${document.replace(/\W/g, '-')}-html.js`] = code;
    const blocks = text.matchAll(/(?:<!-- snippet: ([a-z-]+) -->\n)?```(jsx?|tsx?)\n([\s\S]*?)```/g);
    let at = 0;
    for (const [, label, type, code = ''] of blocks) {
      const name = `${document.replace(/\W/g, '-')}-${label ?? ++at}.${type}`;
      if (label?.endsWith('-config') || FOREIGN.includes(`${label}`)) continue;
      if (label === 'operations') files['docs-front-end-fetch-md-fetch.js'] += code;
      else files[name] = (label === 'client' ? FROM_FORM : '') + code;
    }
  }
  return files;
}

describe('the snippets of the documents', () => {
  let consumer: Consumer;
  beforeAll(() => {
    const react = ['@types/react', 'react', '@ai-sdk/react', 'ai', '@types/node', 'undici-types'];
    consumer = makeConsumer([...react, 'eventsource-parser', '@microsoft/fetch-event-source']);
  });
  afterAll(() => consumer.remove());

  test('are strict TypeScript, and JavaScript whose types the compiler finds', async () => {
    const files = snippets();
    expect(Object.keys(files).length).toBeGreaterThan(10);
    const compilerOptions = {
      ...{ strict: true, allowJs: true, checkJs: true, noEmit: true, skipLibCheck: true, types: [] },
      ...{ module: 'esnext', moduleResolution: 'bundler', moduleDetection: 'force', target: 'es2024' },
      ...{ lib: ['es2024', 'dom', 'dom.iterable', 'dom.asynciterable'], jsx: 'react-jsx' },
    };
    const names = [...Object.keys(files), 'around.d.ts'];
    const config = { 'tsconfig.json': JSON.stringify({ compilerOptions, files: names }) };
    consumer.write({ ...files, ...config, 'package.json': '{ "type": "module" }' });
    consumer.write({ 'around.d.ts': AROUND });
    const compiled = await compile(join(consumer.folder, 'tsconfig.json'));
    expect(compiled).toEqual({ found: '', fault: '', status: 0 });
  });

  test('and those of the example without a bundler are, too', async () => {
    const files = Object.fromEntries(
      ['chat.js', 'server.js'].map((name) => [
        `plain-${name}`,
        readFileSync(join(ROOT, 'examples/plain', name), 'utf8'),
      ]),
    );
    const compilerOptions = {
      ...{ strict: true, noUncheckedIndexedAccess: true, allowJs: true, checkJs: true, noEmit: true },
      ...{ module: 'nodenext', target: 'es2024', skipLibCheck: true, types: ['node'] },
      lib: ['es2024', 'dom', 'dom.iterable', 'dom.asynciterable'],
    };
    const config = JSON.stringify({ compilerOptions, files: Object.keys(files) });
    consumer.write({ ...files, 'tsconfig-plain.json': config, 'package.json': '{ "type": "module" }' });
    const compiled = await compile(join(consumer.folder, 'tsconfig-plain.json'));
    expect(compiled).toEqual({ found: '', fault: '', status: 0 });
  });
});
