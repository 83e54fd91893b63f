import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@redis/client';
import { atEndOfFile } from '../relay/at-end-of-file.ts';
import { freePort } from '../relay/free-port.ts';

/** A server on a port of its own. */
export interface RedisServer {
  readonly port: number;
  readonly host: string;
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

/** Is never connected. Its copies are of its class; each call of `createClient` makes a class with all commands anew. */
const template = createClient();

const servers: ChildProcess[] = [];
const folders: string[] = [];
atEndOfFile(stopRedis);

const READY = /Ready to accept connections|Sentinel ID is/;
const MOST_PORTS = 5;

/** Makes a temporary folder, which `stopRedis` removes. */
export function redisFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-redis-'));
  folders.push(folder);
  return folder;
}

/** Starts a Redis server on a free loopback port; it stores nothing on disk. */
export const startRedis = (...options: string[]) =>
  startServer('--save', '', '--appendonly', 'no', ...options);

/** Starts `redis-server` with these arguments on a free loopback port, in a folder of its own. */
export async function startServer(...args: string[]): Promise<RedisServer> {
  const cwd = redisFolder();
  let port: number;
  let child: ChildProcess;
  /** Returns the log, which ends when the server is ready or over. */
  async function run(): Promise<string> {
    const all = [...args, '--port', String(port), '--bind', '127.0.0.1'];
    child = spawn('redis-server', all, { stdio: ['ignore', 'pipe', 'ignore'], cwd });
    servers.push(child);
    let log = '';
    for await (const text of (child.stdout as NodeJS.ReadableStream).setEncoding('utf8')) {
      log += text;
      if (READY.test(log)) break;
    }
    if (child.exitCode === null) child.stdout?.resume();
    return log;
  }
  // Another test may get the same port while nothing listens on it yet; then the second server is over at once.
  for (let left = MOST_PORTS; ; left -= 1) {
    port = await freePort();
    const log = await run();
    if (READY.test(log)) break;
    if (left === 1 || !log.includes('Address already in use'))
      throw new Error(`redis-server did not start: ${log}`);
  }
  const url = `redis://127.0.0.1:${port}`;
  return {
    ...{ port, url, host: `127.0.0.1:${port}` },
    async start() {
      const log = await run();
      if (child.exitCode !== null) throw new Error(`redis-server did not start: ${log}`);
    },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const gone = once(child, 'exit');
      child.kill('SIGKILL');
      await gone;
    },
    async command(...words) {
      const client = template.duplicate({ url, socket: { reconnectStrategy: false } });
      client.on('error', () => {});
      await client.connect();
      try {
        return await client.sendCommand(words);
      } finally {
        client.destroy();
      }
    },
  };
}

/** Kills all servers; for `afterEach` or `afterAll`. */
export function stopRedis(): void {
  for (const child of servers.splice(0)) child.kill('SIGKILL');
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}
