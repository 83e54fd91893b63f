import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@redis/client';
import { eventually } from '../clock/until.ts';
import { atEndOfFile } from '../relay/at-end-of-file.ts';
import { freePort } from '../relay/free-port.ts';

/** A server of a group, on a port of its own. */
export interface RedisProcess {
  readonly port: number;
  readonly host: string;
  readonly url: string;
  /** SIGSTOP: connections stay open and nothing answers. */
  pause(): void;
  resume(): void;
  /** SIGKILL, if it runs. */
  stop(): Promise<void>;
  /** Runs one command over a connection of its own; returns the reply. */
  command(...words: string[]): Promise<unknown>;
}

/** Is never connected. Its copies are of its class; each call of `createClient` makes a class with all commands anew. */
const template = createClient();

const children: ChildProcess[] = [];
const folders: string[] = [];
atEndOfFile(stopProcessesOfRedis);

const MOST_PORTS = 5;

/** Makes a temporary folder, which `stopProcessesOfRedis` removes. */
export function groupFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-redis-'));
  folders.push(folder);
  return folder;
}

/** Starts `redis-server` with these arguments on a free port, in a folder of its own. */
export async function startProcess(...args: string[]): Promise<RedisProcess> {
  // Another test may get the same port while nothing listens on it yet; then this server is over at once.
  for (let left = MOST_PORTS; left > 0; left -= 1) {
    const started = await tryPort(await freePort(), args);
    if (started) return started;
  }
  throw new Error('redis-server did not start');
}

async function tryPort(port: number, args: readonly string[]): Promise<RedisProcess | undefined> {
  const child = spawn('redis-server', [...args, '--port', String(port), '--bind', '127.0.0.1'], {
    ...{ stdio: ['ignore', 'ignore', 'ignore'], cwd: groupFolder() },
  });
  children.push(child);
  const url = `redis://127.0.0.1:${port}`;
  const command = (...words: string[]) => runAt(url, words);
  const one: RedisProcess = {
    ...{ port, url, command, host: `127.0.0.1:${port}` },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    stop: () => killed(child),
  };
  const isOver = () => child.exitCode !== null;
  await eventually(async () => isOver() || (await command('PING')));
  return isOver() ? undefined : one;
}

/** Runs one command at the server of a URL, over a connection of its own; returns the reply. */
export async function runAt(url: string, words: string[]): Promise<unknown> {
  const client = template.duplicate({ url, socket: { reconnectStrategy: false } });
  client.on('error', () => {});
  await client.connect();
  try {
    return await client.sendCommand(words);
  } finally {
    client.destroy();
  }
}

/** Ends a process by SIGKILL, if it runs; resolves when it is over. */
export async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

/** Kills all servers of groups; for `afterAll`. */
export function stopProcessesOfRedis(): void {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}
