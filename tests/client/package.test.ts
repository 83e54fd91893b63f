import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import { type Consumer, makeConsumer } from '../support/consumer.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LIST = `console.log(Object.keys(await import('bot-relay/client')).sort().join());`;
const listIn = (cwd: string) =>
  execFileSync(process.execPath, ['--input-type=module', '-e', LIST], { cwd, encoding: 'utf8' });

let consumer: Consumer;
beforeAll(() => {
  // Nothing else that the relay itself depends on is there.
  consumer = makeConsumer(['eventsource-parser']);
}, 60_000);
afterAll(() => consumer.remove());

describe('bot-relay/client', () => {
  test("is found by the package's own name", () => {
    expect(listIn(ROOT)).toBe('RelayError,createBotClient\n');
  });

  test('is found where the package is installed', () => {
    expect(listIn(consumer.folder)).toBe('RelayError,createBotClient\n');
  });

  test('is under 4096 bytes bundled, minified and compressed, and needs nothing but eventsource-parser', () => {
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
    expect(gzipSync(bundle?.contents ?? '').length).toBeLessThan(4096);
    const packages = Object.keys(metafile.inputs).flatMap(
      (path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
    );
    expect([...new Set(packages)].sort()).toEqual(['bot-relay', 'eventsource-parser']);
    const imported = Object.values(metafile.outputs).flatMap(({ imports }) => imports);
    expect(imported).toEqual([]);
    expect(String(bundle?.text)).not.toMatch(/\brequire\(|\bprocess\.|\bBuffer\b/);
  });
});
