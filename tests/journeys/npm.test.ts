import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { ROOT } from '../harness/documents/sources.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const { version, dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
};

let group: number | undefined;
afterEach(async () => {
  try {
    if (group !== undefined) process.kill(-group, 'SIGKILL');
  } catch {
    // It has already ended, as expected.
  }
  group = undefined;
  await stopProcesses();
});

/** A checkout that is built, with all that npm has installed. */
function checkout(): string {
  const folder = freshFolder();
  for (const name of ['dist', 'node_modules']) symlinkSync(join(ROOT, name), join(folder, name));
  for (const name of ['bin', 'package.json'])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  return folder;
}

/** What a terminal has, without the programs that npm adds to it: here, nothing of this checkout is in PATH. */
function terminal(): Record<string, string> {
  const path = (process.env.PATH ?? '').split(delimiter).filter((one) => !one.includes('node_modules'));
  return {
    PATH: path.join(delimiter),
    HOME: freshFolder(),
    npm_config_update_notifier: 'false',
    // It warns of the terminal's own Node.js, if that is too old.
    npm_config_loglevel: 'error',
    // Nothing is asked of a registry.
    npm_config_registry: 'http://127.0.0.1:9',
  };
}

function npx(folder: string, ...args: string[]) {
  const options = { cwd: folder, env: terminal(), encoding: 'utf8' } as const;
  const { status, stdout, stderr } = spawnSync('npx', ['bot-relay', ...args], options);
  return { status, stdout, stderr };
}

/** Sends SIGTERM to `started` as soon as the relay listens that it has started. Returns what the relay has printed. */
async function printedWhenStopped(started: ChildProcess): Promise<string> {
  group = started.pid as number;
  let printed = '';
  started.stdout?.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
    if (text.includes('"listening"')) started.kill('SIGTERM');
  });
  // The output ends when all its writers have ended, also the relay.
  await new Promise((resolve) => started.stdout?.once('end', resolve));
  return printed;
}

/** In its own process group, so that nothing outlives a failed test. */
const OWN_GROUP: SpawnOptions = { detached: true, stdio: ['ignore', 'pipe', 'ignore'] };

describe('under npm, the relay shuts down', () => {
  test('when a signal ends the shell between it and npm start', async () => {
    // Like npm: a shell runs the command, and only the shell gets the signal.
    const environment = { PORT: '0', npm_lifecycle_event: 'start' };
    const options = { cwd: freshFolder(), env: environment, ...OWN_GROUP };
    const shell = spawn('/bin/sh', ['-c', `"${process.execPath}" "${MAIN}"; true`], options);
    const printed = await printedWhenStopped(shell);
    expect(printed).toMatch(/"signal":"parent gone","openMessages":0,"msg":"shutting down"/);
    expect(printed).toMatch(/"msg":"stopped"\}\n$/);
  });

  test('when a signal ends npx', async () => {
    const options = { cwd: checkout(), env: { ...terminal(), PORT: '0' }, ...OWN_GROUP };
    const printed = await printedWhenStopped(spawn('npx', ['bot-relay'], options));
    expect(printed).toMatch(/"signal":"(parent gone|SIGTERM)","openMessages":0,"msg":"shutting down"/);
    expect(printed).toMatch(/"msg":"stopped"\}\n$/);
  });
});

describe('npx bot-relay, in a checkout', () => {
  test('runs on the Node.js that npm has installed there', () => {
    const folder = checkout();
    expect(npx(folder, '--version')).toEqual({ status: 0, stdout: `${version}\n`, stderr: '' });
    rmSync(join(folder, 'node_modules'));
    cpSync('/bin/echo', join(folder, 'node_modules/.bin/node'), { recursive: true });
    expect(npx(folder, 'keys', '--json').stdout).toMatch(/\/bot-relay keys --json\n$/);
  });

  test('says in one line that it is not built, and builds nothing', () => {
    const folder = checkout();
    rmSync(join(folder, 'dist'));
    expect(npx(folder, '--version')).toEqual({
      status: 78,
      stdout: '',
      stderr: 'bot-relay is not built: run npm run build\n',
    });
    expect(existsSync(join(folder, 'dist'))).toBe(false);
    // npx remembers what it has found.
    symlinkSync(join(ROOT, 'dist'), join(folder, 'dist'));
    expect(npx(folder, '--version').stdout).toBe(`${version}\n`);
  });

  test('reads the settings of the folder, and exits as the relay does', () => {
    const folder = checkout();
    writeFileSync(join(folder, '.env'), 'PORT=none\n');
    expect(npx(folder, '--check-config')).toMatchObject({
      status: 78,
      stderr: expect.stringMatching(/^The configuration has 1 problem\(s\):\n {2}- PORT must be /),
    });
  });
});

describe('npm pack', () => {
  /** The package as npm unpacks it, beside the packages that it depends on and no others. */
  function installed(): string {
    const folder = freshFolder();
    const pack = ['pack', ROOT, '--ignore-scripts', '--silent'];
    spawnSync('npm', pack, { cwd: folder, env: terminal(), encoding: 'utf8' });
    spawnSync('tar', ['-xzf', `bot-relay-${version}.tgz`], { cwd: folder });
    for (const name of Object.keys(dependencies)) {
      const link = join(folder, 'node_modules', name);
      mkdirSync(dirname(link), { recursive: true });
      symlinkSync(join(ROOT, 'node_modules', name), link);
    }
    return join(folder, 'package');
  }

  test('holds what runs, and no source, test or secret', () => {
    expect(readdirSync(installed()).sort()).toEqual([
      ...['.env.example', 'LICENSE', 'README.md', 'bin', 'dist', 'package.json'],
    ]);
  });

  test('makes a package that serves the chat and its client', async () => {
    const program = join(installed(), 'bin/bot-relay.js');
    const options = { cwd: freshFolder(), env: { ...terminal(), PORT: '0' }, ...OWN_GROUP };
    const started = spawn(process.execPath, [program], options);
    group = started.pid as number;
    const [line] = await once(createInterface(started.stdout as Readable), 'line');
    const { port } = JSON.parse(line) as { port: number };
    for (const path of ['/', '/client/bot-chat.js', '/client/bot-relay-client.tgz']) {
      const { status } = await fetch(`http://127.0.0.1:${port}${path}`);
      expect([path, status]).toEqual([path, 200]);
    }
  });
});
