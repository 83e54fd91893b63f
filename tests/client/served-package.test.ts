import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { call, expectProblem } from '../support/call.ts';
import { TARBALL } from '../support/consumer.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';
import { ROOT } from '../support/sources.ts';

// A package manager is slow on a busy machine.
jest.setTimeout(90_000);

const PATH = '/client/bot-relay-client.tgz';
const NOWHERE = 'http://127.0.0.1:9';
const bytes = readFileSync(TARBALL);

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay(NOWHERE);
});
afterAll(() => relay.close());

let other: TestRelay | undefined;
afterEach(async () => {
  await other?.close();
  other = undefined;
});

describe('GET /client/bot-relay-client.tgz', () => {
  test('answers with the package of the build, without a session', async () => {
    const response = await fetch(relay.url + PATH);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'application/gzip',
      'content-length': String(bytes.length),
      'cache-control': 'no-cache',
      'x-content-type-options': 'nosniff',
    });
    expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
  });

  test('answers HEAD without a body, and refuses other methods', async () => {
    const head = await call(relay.port, PATH, { method: 'HEAD' });
    expect(head).toMatchObject({ status: 200, body: '' });
    expect(head.headers['content-length']).toBe(String(bytes.length));
    const posted = await call(relay.port, PATH, { method: 'POST' });
    expectProblem(posted, 405, 'method_not_allowed');
    expect(posted.headers.allow).toBe('GET, HEAD');
  });

  test('answers 304 if the cache has this package, and 200 if it has another one', async () => {
    const { headers } = await call(relay.port, PATH);
    const etag = String(headers.etag);
    expect(etag).toMatch(/^"[\w-]{43}"$/);
    const again = (cached: string) => call(relay.port, PATH, { headers: { 'If-None-Match': cached } });
    expect(await again(etag)).toMatchObject({ status: 304, body: '', headers: { etag } });
    expect(await again('"another"')).toMatchObject({ status: 200 });
  });

  test('is below BASE_PATH', async () => {
    other = await startRelay(NOWHERE, { BASE_PATH: '/chat-api' });
    expect(await call(other.port, `/chat-api${PATH}`, { method: 'HEAD' })).toMatchObject({ status: 200 });
    expectProblem(await call(other.port, PATH), 404, 'not_found');
  });

  test('counts for the limit of the address', async () => {
    other = await startRelay(NOWHERE, { CLIENT_LIMIT_PER_ADDRESS: '1' });
    expect(await call(other.port, PATH, { method: 'HEAD' })).toMatchObject({ status: 200 });
    expectProblem(await call(other.port, PATH), 429, 'too_many_attempts');
  });

  test('answers 404 with CLIENT_FILES=off', async () => {
    other = await startRelay(NOWHERE, { CLIENT_FILES: 'off' });
    expectProblem(await call(other.port, PATH), 404, 'not_found');
  });
});

const MANAGERS = {
  npm: ['npm', 'install', '--no-audit', '--no-fund'],
  pnpm: [process.execPath, join(ROOT, 'node_modules/pnpm/bin/pnpm.cjs'), 'add'],
};

describe('the package at its address', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'bot-relay-installed-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  /** A new project, with this version of React: its name and version are all that counts for an installation. */
  function project(name: string, react?: string): string {
    const path = join(folder, name);
    mkdirSync(join(path, 'react'), { recursive: true });
    const dependencies = react === undefined ? {} : { react: 'file:./react' };
    writeFileSync(
      join(path, 'package.json'),
      JSON.stringify({ private: true, type: 'module', dependencies }),
    );
    writeFileSync(join(path, 'react/package.json'), JSON.stringify({ name: 'react', version: react ?? '0' }));
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
    expect(installed.filter((name) => name !== 'react')).toEqual(['bot-relay-client']);
    const program = "const { RelayError } = await import('bot-relay-client'); console.log(RelayError.name);";
    const node = ['--input-type=module', '-e', program];
    const { stdout } = await promisify(execFile)(process.execPath, node, { cwd });
    expect(stdout.trim()).toBe('RelayError');
  }

  test.each([
    ['npm', 'without React', undefined],
    ['npm', 'beside React 18', '18.3.1'],
    ['npm', 'beside a later React', '20.0.0'],
    ['npm', 'beside an older React, which the hook cannot use', '17.0.2'],
    ['pnpm', 'without React', undefined],
    ['pnpm', 'beside React 18', '18.3.1'],
  ] as const)('is installed by %s %s', async (manager, which, version) => {
    await install(project(`${manager} ${which}`, version), manager);
  });

  test('is asked for again by npm, which has it in its cache', async () => {
    const before = relay.logs.length;
    await install(project('again'), 'npm');
    const asked = relay.logs.slice(before).filter(({ route }) => route === PATH);
    expect(new Set(asked.map(({ status }) => status))).toEqual(new Set([304]));
  });
});
