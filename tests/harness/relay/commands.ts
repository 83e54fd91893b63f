import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { COMPILE_CACHE, freshFolder, type ProcessOptions } from './process.ts';
import { expectNoCanary } from './relay.ts';

const HOST = fileURLToPath(new URL('./command-host.js', import.meta.url));

/** What a command has printed, and the exit code of its process. */
export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

let host: ChildProcess | undefined;
let last: Promise<unknown> = Promise.resolve();

/**
 * Runs the built relay with these arguments and this whole environment, like `startProcess`, but in one process for
 * all commands of a test file, one after the other. It is for commands that end by themselves. Throws if a canary was
 * printed.
 */
export function runCommand(options: Pick<ProcessOptions, 'args' | 'environment' | 'folder'>): Promise<Ran> {
  const { args = [], environment = {}, folder = freshFolder() } = options;
  const ran = last.then(async () => {
    host ??= fork(HOST, { env: COMPILE_CACHE, stdio: 'inherit', execArgv: [] });
    const answer = once(host, 'message') as Promise<[Ran]>;
    host.send({ args, environment, folder });
    const [result] = await answer;
    expectNoCanary(result.stdout + result.stderr);
    return result;
  });
  last = ran.catch(() => {});
  return ran;
}

/** Ends the process of the commands; for `afterAll`. */
export async function stopCommands(): Promise<void> {
  const ending = host;
  host = undefined;
  if (!ending) return;
  const exited = once(ending, 'exit');
  ending.kill('SIGKILL');
  await exited;
}
