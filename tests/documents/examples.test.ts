import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { TARBALL } from '../harness/clients/consumer.ts';
import { codeOf, tablesOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';

const names = readdirSync(join(ROOT, 'examples'));
const read = (name: string, file: string) => readFileSync(join(ROOT, 'examples', name, file), 'utf8');

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-example-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Runs the script of `npm run example`, from `folder`. */
function example(...words: readonly string[]) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(ROOT, 'build/example.ts'), ...words],
    // npm names the folder in which it was called.
    { cwd: ROOT, encoding: 'utf8', env: { ...process.env, INIT_CWD: folder } },
  );
  return { status, stdout, stderr };
}

describe('npm run example', () => {
  test.each(names)('copies %s with the client of this checkout', (name) => {
    const { status, stdout } = example(name, 'my-chat');
    const copy = join(folder, 'my-chat');
    expect({ status, stdout }).toEqual({ status: 0, stdout: expect.stringContaining(copy) });
    expect(readFileSync(join(copy, 'bot-relay-client.tgz')).equals(readFileSync(TARBALL))).toBe(true);
    expect(readFileSync(join(copy, 'package.json'), 'utf8')).toBe(read(name, 'package.json'));
    expect(readFileSync(join(copy, '.gitignore'), 'utf8')).toContain('node_modules/\n');
    expect(readdirSync(copy).filter((file) => /^(node_modules|dist|\.next)$/.test(file))).toEqual([]);
  });

  test('writes into an empty folder', () => {
    expect(example('plain', '.').status).toBe(0);
    expect(existsSync(join(folder, 'package.json'))).toBe(true);
  });

  test('refuses a name that it does not know, and says which there are', () => {
    const { status, stderr } = example('cobol', 'my-chat');
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: `There is no example cobol. There are: ${names.join(', ')}.\n`,
    });
    expect(readdirSync(folder)).toEqual([]);
    expect(example('../src', 'my-chat').stderr).toMatch(/^There is no example/);
  });

  test.each(['.', 'note.txt'])('refuses a folder that is not empty, and a file: %s', (target) => {
    writeFileSync(join(folder, 'note.txt'), 'mine');
    const { status, stderr } = example('plain', target);
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: `${join(folder, target)} is not an empty folder.\n`,
    });
    expect(readdirSync(folder)).toEqual(['note.txt']);
  });

  test.each([[[]], [['plain']], [['plain', 'one', 'two']]])('says how it is used: %j', (words) => {
    const { status, stderr } = example(...words);
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: expect.stringMatching(/^Usage: npm run example -- /),
    });
  });
});

describe('the documents for front-end developers', () => {
  const start = readFileSync(join(ROOT, 'docs/front-end.md'), 'utf8');
  const document = readFileSync(join(ROOT, 'docs/front-end/examples.md'), 'utf8');

  test.each([
    ['vite-react', 'react(), tailwindcss()'],
    ['vue', 'vue()'],
    ['svelte', 'svelte()'],
  ])('have as vite-config what %s has, but for the plugins', (name, plugins) => {
    const [, proxy = ''] = codeOf(start, 'vite-config').split(/(?=\nconst relay)/);
    const withoutSpace = (code: string) => code.replace(/[\s,]/g, '');
    expect(withoutSpace(read(name, 'vite.config.ts'))).toContain(
      withoutSpace(proxy.replace('react()', plugins)),
    );
  });

  test('have as next-config what next has', () => {
    expect(codeOf(start, 'next-config')).toBe(read('next', 'next.config.ts'));
  });

  test('have commands that copy an example and install its packages', () => {
    const [copy = '', enter, ...install] = codeOf(document, 'new-plain').trim().split('\n');
    const [name = '', target = ''] = copy.replace('npm run example -- ', '').split(' ');
    expect(example(name, target).status).toBe(0);
    expect([enter, ...install]).toEqual([`cd ${target}`, 'npm install']);
  });

  test('list the examples', () => {
    const [table] = tablesOf(document);
    const listed = table?.rows.flatMap(([name = '']) =>
      [...name.matchAll(/`([^`]+)`/g)].map(([, one]) => one),
    );
    expect(listed?.sort()).toEqual(names);
  });
});

describe('an example', () => {
  test.each(names)('takes the client from its folder, and all else in one version: %s', (name) => {
    const { dependencies, devDependencies = {} } = JSON.parse(read(name, 'package.json'));
    const { 'bot-relay-client': client, ...others } = { ...dependencies, ...devDependencies };
    expect(client).toBe('file:bot-relay-client.tgz');
    expect(Object.values<string>(others).filter((version) => !/^\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });

  test.each(names)('has no lock file, and a README that says how it starts: %s', (name) => {
    const files = readdirSync(join(ROOT, 'examples', name));
    // A run in the folder itself makes one, which git ignores.
    const ignored = readFileSync(join(ROOT, '.gitignore'), 'utf8').split('\n');
    expect(ignored).toContain('examples/*/package-lock.json');
    expect(files).toContain('README.md');
    const readme = read(name, 'README.md');
    expect(readme).toContain(`npm run example -- ${name} `);
    expect(readme).toContain('npm install');
    expect(readme.split('\n').length).toBeLessThanOrEqual(15);
  });

  const typed = names.filter((name) => existsSync(join(ROOT, 'examples', name, 'tsconfig.json')));
  test.each(typed)('is compiled strictly: %s', (name) => {
    expect(JSON.parse(read(name, 'tsconfig.json')).compilerOptions.strict).toBe(true);
  });
});
