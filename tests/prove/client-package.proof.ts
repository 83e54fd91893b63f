import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { buildSync } from 'esbuild';
import { type Consumer, TARBALL } from '../harness/clients/consumer.ts';
import { releasePath } from '../harness/clients/release-packages.ts';
import {
  AI_SDK,
  compileIn,
  NODE_ALONE,
  NODE_PAGE,
  PAGE,
  typedConsumer,
} from '../harness/clients/typed-consumer.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

// A package manager and old compilers are slow on a busy machine.
jest.setTimeout(180_000);

const PATH = '/client/bot-relay-client.tgz';
const NOWHERE = 'http://127.0.0.1:9';

let relay: TestRelay;
let consumer: Consumer;
beforeAll(async () => {
  relay = await startRelay(NOWHERE);
  consumer = typedConsumer();
});
afterAll(async () => {
  consumer.remove();
  await relay.close();
});

describe('the types of the package, for all compilers', () => {
  // Most of their time goes into the types of React.
  const alone = { ...NODE_PAGE, files: ['page.ts'] };
  test.each([
    ['typescript', 'with the modules of Node, and React 18', NODE_PAGE],
    ['typescript', 'in Node, without the types of browsers and of React', NODE_ALONE],
    ['typescript', 'beside the AI SDK', AI_SDK],
    ['typescript-6', 'in a page', PAGE],
    ['typescript-6', 'with the modules of Node', alone],
    ['typescript-5.4', 'in a page', PAGE],
    ['typescript-5.4', 'with the modules of Node, and React 18', NODE_PAGE],
  ] as const)('are valid for %s %s', async (compiler, where, project) => {
    const compiled = await compileIn(consumer, project, { name: `${compiler}-${where.length}`, compiler });
    expect(compiled).toEqual({ found: '', fault: '', status: 0 });
  });

  test('are where each module is, also in the eyes of attw', () => {
    const attw = releasePath('@arethetypeswrong/cli/dist/index.js');
    const words = [attw, TARBALL, '--profile', 'esm-only', '--no-color'];
    const { status, stdout } = spawnSync(process.execPath, words, { encoding: 'utf8' });
    expect([status, stdout]).toEqual([0, expect.stringContaining('"bot-relay-client/react"')]);
    expect(stdout).toContain('"bot-relay-client/ai-sdk"');
  });

  test('are well made, also in the eyes of publint', () => {
    const words = [releasePath('publint/src/cli.js'), 'run', TARBALL, '--strict'];
    const { status, stdout } = spawnSync(process.execPath, words, { encoding: 'utf8' });
    expect([status, stdout]).toEqual([0, expect.stringContaining('All good')]);
  });
});

const MANAGERS = {
  npm: ['npm', 'install', '--no-audit', '--no-fund'],
  pnpm: [process.execPath, releasePath('pnpm/bin/pnpm.cjs'), 'add'],
};

describe('the package at its address', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'bot-relay-installed-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  /** A new project with this package, such as `react@18.3.1`: name and version are all that counts for an installation. */
  function project(name: string, beside?: string): string {
    const path = join(folder, name);
    const [other = '', version] = beside?.split('@') ?? [];
    mkdirSync(join(path, 'other'), { recursive: true });
    const dependencies = beside === undefined ? {} : { [other]: 'file:./other' };
    writeFileSync(
      join(path, 'package.json'),
      JSON.stringify({ private: true, type: 'module', dependencies }),
    );
    writeFileSync(join(path, 'other/package.json'), JSON.stringify({ name: other, version }));
    return path;
  }

  /** Installs the package there. Nothing else can be had: no registry answers. */
  async function install(cwd: string, manager: keyof typeof MANAGERS): Promise<void> {
    const [command = '', ...words] = MANAGERS[manager];
    const env = {
      ...process.env,
      NPM_CONFIG_USERCONFIG: join(folder, 'npmrc'),
      NPM_CONFIG_CACHE: join(folder, 'cache'),
      NPM_CONFIG_REGISTRY: `${NOWHERE}/`,
      NPM_CONFIG_FETCH_RETRIES: '0',
      NPM_CONFIG_STORE_DIR: join(folder, 'store'),
      XDG_CACHE_HOME: join(folder, 'cache'),
    };
    await promisify(execFile)(command, [...words, relay.url + PATH], { cwd, env });
    const installed = readdirSync(join(cwd, 'node_modules')).filter((name) => !name.startsWith('.'));
    expect(installed.filter((name) => name !== 'react' && name !== 'ai')).toEqual(['bot-relay-client']);
    const program = "const { RelayError } = await import('bot-relay-client'); console.log(RelayError.name);";
    const node = ['--input-type=module', '-e', program];
    const { stdout } = await promisify(execFile)(process.execPath, node, { cwd });
    expect(stdout.trim()).toBe('RelayError');
  }

  test.each([
    ['npm', 'without React', undefined],
    ['npm', 'beside React 18', 'react@18.3.1'],
    ['npm', 'beside a later React', 'react@20.0.0'],
    ['npm', 'beside an older React, which the hook cannot use', 'react@17.0.2'],
    ['npm', 'beside an older AI SDK', 'ai@4.3.19'],
    ['npm', 'beside a later AI SDK', 'ai@9.0.0'],
    ['pnpm', 'without React', undefined],
    ['pnpm', 'beside an older AI SDK', 'ai@4.3.19'],
    ['pnpm', 'beside React 18', 'react@18.3.1'],
  ] as const)('is installed by %s %s', async (manager, which, beside) => {
    await install(project(`${manager} ${which}`, beside), manager);
  });

  test('is asked for again by npm, which has it in its cache', async () => {
    const before = relay.logs.length;
    await install(project('again'), 'npm');
    const asked = relay.logs.slice(before).filter(({ route }) => route === PATH);
    expect(new Set(asked.map(({ status }) => status))).toEqual(new Set([304]));
  });
});

const gzipped = (file: string | Uint8Array) => gzipSync(file, { level: 9 }).length / 1024;
/** The KiB in gzip that a page loads for these exports, minified. */
function kib(contents: string): number {
  const { outputFiles } = buildSync({
    stdin: { contents, resolveDir: consumer.folder },
    ...{ bundle: true, minify: true, format: 'esm', platform: 'browser' },
    // `<BotChat>` loads the element when it is shown.
    external: ['react', '*/element.js'],
    ...{ write: false, outdir: consumer.folder, absWorkingDir: ROOT },
  });
  return gzipped(String(outputFiles[0]?.text));
}

test('the package and the element are no larger than the document promises', () => {
  const client = kib("export { createBotClient } from 'bot-relay-client';");
  expect(client).toBeLessThanOrEqual(8.25);
  expect(kib("export { createBotClient, createChannel } from 'bot-relay-client';")).toBeLessThanOrEqual(17);
  const channels = kib("export { createBotClient, createChannel, textOf } from 'bot-relay-client';");
  expect(kib("export * from 'bot-relay-client/react';") - channels).toBeLessThanOrEqual(0.75);
  const transport = "export { botChatTransport } from 'bot-relay-client/ai-sdk';";
  expect(
    kib(`export { createBotClient } from 'bot-relay-client'; ${transport}`) - client,
  ).toBeLessThanOrEqual(4.75);
  const loading = "export * from 'bot-relay-client/ai-sdk';";
  expect(kib(`export { createBotClient } from 'bot-relay-client'; ${loading}`) - client).toBeLessThanOrEqual(
    6.75,
  );
  expect(gzipped(readFileSync(join(ROOT, 'dist/bot-chat/bot-chat.js')))).toBeLessThanOrEqual(60);
});
