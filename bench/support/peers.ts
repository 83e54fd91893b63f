import { type ChildProcess, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { startRedis } from '../../tests/harness/redis/redis-server.ts';
import { freePort } from '../../tests/harness/relay/free-port.ts';
import { startChild } from './child.ts';
import { API_KEY } from './message.ts';
import { startRelay } from './relay-process.ts';
import { signIn } from './sign-in.ts';
import { waitUntil } from './wait.ts';

const START_TIMEOUT_MS = 10_000;
const { resolve: resolveModule } = createRequire(import.meta.url);

/** A running process between a page and a bot service. */
export interface RunningPeer {
  readonly port: number;
  readonly pid: number;
  /** Whole header lines for each message to it. */
  readonly headers: readonly string[];
  close(): Promise<void>;
}

export interface Peer {
  readonly name: string;
  /** Empty if it has no version, undefined if the peer is not installed. */
  readonly version: () => string | undefined;
  /** @throws Error if it does not start */
  readonly start: (upstreamPort: number) => Promise<RunningPeer>;
}

/** As long as a session cookie of the relay, so that all peers get messages of the same length. */
const COOKIE = `Cookie: __Host-bot_relay_session=${'s'.repeat(76)}`;

/** All peers, in the order of the tables. */
export const PEERS: readonly Peer[] = [
  { name: 'nginx', version: programVersion('nginx', '-v'), start: startNginx },
  { name: 'HAProxy', version: programVersion('haproxy', '-v'), start: startHaproxy },
  { name: 'node:http pipe', version: () => '', start: script('node-pipe') },
  {
    name: 'http-proxy-middleware 4',
    version: packageVersion('http-proxy-middleware'),
    start: script('hpm-4'),
  },
  {
    name: 'http-proxy-middleware 3',
    version: packageVersion('http-proxy-middleware-3'),
    start: script('hpm-3'),
  },
  { name: '@fastify/http-proxy', version: packageVersion('@fastify/http-proxy'), start: script('fastify') },
  { name: 'undici', version: packageVersion('undici'), start: script('undici') },
  { name: 'hono proxy', version: packageVersion('hono'), start: script('hono') },
  { name: 'naive stack', version: () => '', start: (port) => naive(port) },
  {
    name: 'naive stack with Redis',
    version: programVersion('redis-server', '--version'),
    start: (port) => withRedis((url) => naive(port, url)),
  },
  { name: 'bot-relay', version: () => '', start: (port) => relay(port, {}) },
  { name: 'bot-relay, JOIN=off', version: () => '', start: (port) => relay(port, { JOIN: 'off' }) },
  {
    name: 'bot-relay with Redis',
    version: programVersion('redis-server', '--version'),
    start: (port) => withRedis((url) => relay(port, { REDIS_URL: url })),
  },
  {
    name: 'bot-relay with Redis, JOIN=off',
    version: programVersion('redis-server', '--version'),
    start: (port) => withRedis((url) => relay(port, { REDIS_URL: url, JOIN: 'off' })),
  },
];

async function relay(
  upstreamPort: number,
  environment: Readonly<Record<string, string>>,
): Promise<RunningPeer> {
  const { port, pid, cookie, close } = await startRelay(upstreamPort, environment);
  return { port, pid, headers: [`Cookie: ${cookie}`], close };
}

/** Starts a peer with its own Redis, which is not measured: in production it is a shared server. */
async function withRedis(start: (url: string) => Promise<RunningPeer>): Promise<RunningPeer> {
  const redis = await startRedis();
  try {
    const running = await start(redis.url);
    const close = () => running.close().finally(redis.stop);
    return { ...running, close };
  } catch (error) {
    await redis.stop();
    throw error;
  }
}

/** Starts the naive stack, with its log to a pipe, and signs the user in. */
async function naive(upstreamPort: number, ...redisUrl: string[]): Promise<RunningPeer> {
  const running = await script('naive', ...redisUrl)(upstreamPort);
  return { ...running, headers: [`Cookie: ${await signIn(running.port)}`] };
}

/** Starts a script of `../peers/`, which prints its port in its first line; the others are dropped. */
function script(name: string, ...more: readonly string[]): Peer['start'] {
  const file = fileURLToPath(new URL(`../peers/${name}.ts`, import.meta.url));
  return async (upstreamPort) => {
    const child = startChild(process.execPath, [file, String(upstreamPort), ...more], {
      // Their errors about clients that leave are expected.
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { NODE_ENV: 'production' },
    });
    const printed = child.stdout as NodeJS.ReadableStream;
    const lines = createInterface(printed);
    const port = await new Promise<number>((resolve, reject) => {
      lines.once('line', (line) => resolve(JSON.parse(line).port));
      child.once('exit', () => reject(new Error(`${name} did not start`)));
    });
    lines.close();
    printed.resume();
    return { port, pid: child.pid as number, headers: [COOKIE], close: () => stop(child) };
  };
}

async function startNginx(upstreamPort: number): Promise<RunningPeer> {
  return startProgram('nginx.conf', upstreamPort, (file, directory) =>
    startChild('nginx', ['-p', directory, '-e', join(directory, 'error.log'), '-c', file], {
      stdio: 'ignore',
    }),
  );
}

async function startHaproxy(upstreamPort: number): Promise<RunningPeer> {
  return startProgram('haproxy.cfg', upstreamPort, (file) =>
    startChild('haproxy', ['-db', '-f', file], { stdio: 'ignore' }),
  );
}

/** Starts a program with a configuration file that is made from a template of `../peers/`. */
async function startProgram(
  template: string,
  upstreamPort: number,
  run: (file: string, directory: string) => ChildProcess,
): Promise<RunningPeer> {
  const directory = mkdtempSync(join(tmpdir(), 'bot-relay-bench-'));
  mkdirSync(join(directory, 'body'));
  const port = await freePort();
  const values = { DIRECTORY: directory, PORT: port, UPSTREAM_PORT: upstreamPort, API_KEY };
  const text = readFileSync(new URL(`../peers/${template}`, import.meta.url), 'utf8');
  const file = join(directory, template);
  writeFileSync(
    file,
    text.replace(/\$\{(\w+)\}/g, (_whole, name: keyof typeof values) => String(values[name])),
  );
  const child = run(file, directory);
  const close = async () => {
    await stop(child);
    rmSync(directory, { recursive: true });
  };
  try {
    await waitUntil(() => child.exitCode !== null || accepts(port), START_TIMEOUT_MS);
    if (child.exitCode !== null) throw new Error(`${template}: exit code ${child.exitCode}`);
  } catch (error) {
    await close();
    throw error;
  }
  return { port, pid: child.pid as number, headers: [COOKIE], close };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await exited;
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}

function packageVersion(name: string): Peer['version'] {
  return () => {
    const main = resolveModule(name);
    const directory = main.slice(0, main.lastIndexOf(`node_modules/${name}/`));
    const file = join(directory, 'node_modules', name, 'package.json');
    return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
  };
}

/** The first number with dots that the program prints. */
function programVersion(program: string, flag: string): Peer['version'] {
  return () => {
    try {
      // nginx prints its version on standard error.
      const printed = execFileSync('sh', ['-c', `${program} ${flag} 2>&1`], { encoding: 'utf8' });
      return /\d+\.\d+(\.\d+)*/.exec(printed)?.[0] ?? '';
    } catch {
      return undefined;
    }
  };
}
