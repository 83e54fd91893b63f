import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { ROOT } from '../harness/documents/sources.ts';

// It installs TypeDoc, with a compiler of its own.
jest.setTimeout(180_000);

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-reference-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The pages in a folder, by their names. */
function pagesIn(path: string): Record<string, string> {
  return Object.fromEntries(readdirSync(path).map((name) => [name, readFileSync(join(path, name), 'utf8')]));
}

describe('the reference of the client', () => {
  test('is what `npm run reference` writes', () => {
    const out = join(folder, 'api');
    const npm = ['run', '--silent', 'reference', '--', out];
    const { status, stdout, stderr } = spawnSync('npm', npm, { cwd: ROOT, encoding: 'utf8' });
    expect([status, stdout, stderr]).toEqual([0, '', expect.not.stringContaining('[warning]')]);
    expect(pagesIn(join(ROOT, 'docs/api'))).toEqual(pagesIn(out));
  });

  test('is not written if something of it has no comment', () => {
    writeFileSync(join(folder, 'entry.ts'), 'export function said(): void {}\n');
    writeFileSync(join(folder, 'tsconfig.json'), '{ "compilerOptions": { "module": "nodenext" } }');
    const options = { extends: [join(ROOT, 'build/reference/typedoc.json')], tsconfig: 'tsconfig.json' };
    writeFileSync(join(folder, 'typedoc.json'), JSON.stringify(options));
    const typedoc = join(ROOT, 'build/reference/node_modules/typedoc/bin/typedoc');
    const words = [typedoc, '--out', join(folder, 'out'), join(folder, 'entry.ts')];
    const { status, stderr } = spawnSync(process.execPath, words, { cwd: folder, encoding: 'utf8' });
    expect([status, stderr]).toEqual([4, expect.stringContaining('does not have any documentation')]);
    expect(readdirSync(folder)).not.toContain('out');
  });
});
