import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { call } from '../clients/call.ts';
import { until } from '../clock/until.ts';
import { atEndOfFile } from './at-end-of-file.ts';
import { cheapHash } from './cheap-hash.ts';
import { CANARY, expectNoCanary, USER } from './secrets.ts';

const MAIN = fileURLToPath(new URL('../../../dist/main.js', import.meta.url));

/** Node.js keeps compiled code in this folder, so that a process starts with less work. */
export const COMPILE_CACHE = { NODE_COMPILE_CACHE: join(tmpdir(), 'bot-relay-compile-cache') };

export interface ProcessOptions {
  readonly args?: readonly string[];
  /** The whole environment, without `COMPILE_CACHE`; that of this process is not passed on. */
  readonly environment?: Readonly<Record<string, string>>;
  /** The working directory; a fresh one if not given, so that no `.env` or `users.json` interferes. */
  readonly folder?: string;
  /** Written to its standard input. */
  readonly input?: string;
  /** Arguments of Node itself. */
  readonly nodeArgs?: readonly string[];
}

export interface RelayProcess {
  readonly pid: number;
  stdout(): string;
  stderr(): string;
  /** Resolves with the match as soon as it is printed; rejects if the process ends before. */
  waitFor(pattern: RegExp): Promise<RegExpMatchArray>;
  /** Resolves with the port of its `listening` line. */
  listening(): Promise<number>;
  /** Resolves when the process has ended and all its output was read. */
  readonly exited: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  signal(name: NodeJS.Signals): void;
}

const folders: string[] = [];
const processes: RelayProcess[] = [];
atEndOfFile(() => stopProcesses());

/** Makes a temporary folder with `files`; `stopProcesses` removes it. */
export function freshFolder(files: Readonly<Record<string, string>> = {}): string {
  const folder = newFolder(files);
  folders.push(folder);
  return folder;
}

/** Makes a temporary folder with `files`. The caller removes it. */
export function newFolder(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-journey-'));
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return folder;
}

/** The text of a users file: these users, who all have the password of the tests. */
export function usersFile(names: readonly string[] = [USER.name]): string {
  const hash = cheapHash(USER.password);
  return JSON.stringify({ users: names.map((name) => ({ name, hash })) });
}

/** The environment of a relay process in front of the bot service at `upstreamUrl`, on a free loopback port. */
export function inFrontOf(upstreamUrl: string): Record<string, string> {
  return {
    PORT: '0',
    HOST: '127.0.0.1',
    UPSTREAM_BASE_URL: upstreamUrl,
    UPSTREAM_API_KEYS: CANARY.key,
    BOTS: 'acme/helper',
    SESSION_SECRETS: CANARY.sessionSecret,
    CHANNEL_SECRET: CANARY.channelSecret,
  };
}

/** Starts the built relay as a process of its own, which `stopProcesses` kills. */
export function startProcess(options: ProcessOptions = {}): RelayProcess {
  const relay = spawnRelay(options);
  processes.push(relay);
  return relay;
}

/** Starts the built relay as a process of its own, which the caller ends. */
export function spawnRelay(options: ProcessOptions): RelayProcess {
  const { args = [], environment = {}, folder = freshFolder(), input = '', nodeArgs = [] } = options;
  const child = spawn(process.execPath, [...nodeArgs, MAIN, ...args], {
    cwd: folder,
    env: { ...COMPILE_CACHE, ...environment },
  });
  const printed = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      printed[name] += text;
    });
  }
  // A process that ends without reading its input is no failure of the test.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const all = () => printed.stdout + printed.stderr;
  const relay: RelayProcess = {
    pid: child.pid as number,
    stdout: () => printed.stdout,
    stderr: () => printed.stderr,
    waitFor: (pattern) =>
      new Promise((resolve, reject) => {
        const check = () => {
          const match = all().match(pattern);
          if (match) resolve(match);
        };
        child.stdout.on('data', check);
        child.stderr.on('data', check);
        relay.exited.then(() => reject(new Error(`ended before ${pattern} was printed; printed: ${all()}`)));
        check();
      }),
    listening: async () => Number((await relay.waitFor(/"port":(\d+).*"msg":"listening"/))[1]),
    exited: new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) => resolve({ code, signal }));
    }),
    signal: (name) => void child.kill(name),
  };
  return relay;
}

/**
 * Kills the processes that still run and removes the folders. A file may call it in `afterEach`; it is called at the end
 * of each file. Throws if a process has printed a canary or one of `secrets`.
 */
export async function stopProcesses(secrets: readonly string[] = []): Promise<void> {
  const stopped = processes.splice(0);
  for (const relay of stopped) relay.signal('SIGKILL');
  await Promise.all(stopped.map(({ exited }) => exited));
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
  for (const relay of stopped) {
    const text = relay.stdout() + relay.stderr();
    expectNoCanary(text);
    const shown = secrets.findIndex((secret) => text.includes(secret));
    if (shown >= 0) throw new Error(`secret number ${shown} has shown in: ${text.slice(0, 2000)}`);
  }
}

/** Waits until the relay that listens on `port` is ready. It listens before it has Redis, and answers 503 until then. */
export function untilReady(port: number): Promise<void> {
  return until(async () => (await call(port, '/readyz')).status === 200, 20);
}

/** Waits until a relay process is ready, and signs in; returns the `Cookie` header to send. */
export async function signInAt(port: number, username: string, password: string): Promise<string> {
  await untilReady(port);
  const answer = await call(port, '/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ username, password }),
  });
  if (answer.status !== 200) throw new Error(`sign-in answered ${answer.status}: ${answer.body}`);
  return (answer.headers['set-cookie'] ?? []).map((cookie) => cookie.split(';', 1)[0]).join('; ');
}
