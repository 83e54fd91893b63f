import { type ChildProcess, spawn } from 'node:child_process';
import { atEndOfFile } from '../relay/at-end-of-file.ts';
import { freePort } from '../relay/free-port.ts';
import { killed, runAt } from './redis-process.ts';

export interface RedisServer {
  readonly url: string;
  /** SIGSTOP: connections stay open and nothing answers. */
  pause(): void;
  resume(): void;
  /** SIGKILL, if it runs. */
  stop(): Promise<void>;
  /** Starts it again on the same port, without data. */
  start(): Promise<void>;
  /** Runs one command over a connection of its own; returns the reply. */
  command(...words: string[]): Promise<unknown>;
}

const servers: ChildProcess[] = [];
atEndOfFile(stopRedis);

const READY = 'Ready to accept connections';
const MOST_PORTS = 5;

/** Starts a Redis server on a free loopback port; it stores nothing on disk. */
export async function startRedis(...options: string[]): Promise<RedisServer> {
  let port: number;
  let child: ChildProcess;
  /** Returns the log, which ends when the server is ready or over. */
  async function run(): Promise<string> {
    child = spawn(
      'redis-server',
      ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', ...options],
      { stdio: ['ignore', 'pipe', 'ignore'], cwd: '/tmp' },
    );
    servers.push(child);
    let log = '';
    for await (const text of (child.stdout as NodeJS.ReadableStream).setEncoding('utf8')) {
      log += text;
      if (log.includes(READY)) break;
    }
    if (child.exitCode === null) child.stdout?.resume();
    return log;
  }
  // Another test may get the same port while nothing listens on it yet; then the second server is over at once.
  for (let left = MOST_PORTS; ; left -= 1) {
    port = await freePort();
    const log = await run();
    if (log.includes(READY)) break;
    if (left === 1 || !log.includes('Address already in use'))
      throw new Error(`redis-server did not start: ${log}`);
  }
  const url = `redis://127.0.0.1:${port}`;
  return {
    url,
    async start() {
      const log = await run();
      if (child.exitCode !== null) throw new Error(`redis-server did not start: ${log}`);
    },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    stop: () => killed(child),
    command: (...words) => runAt(url, words),
  };
}

/** Kills all servers; for `afterEach` or `afterAll`. */
export function stopRedis(): void {
  for (const child of servers.splice(0)) child.kill('SIGKILL');
}
