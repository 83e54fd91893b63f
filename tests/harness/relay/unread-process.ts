import { spawn } from 'node:child_process';
import { COMPILE_CACHE } from './process.ts';
import { type Kind, readableOutput } from './readable-output.ts';

/** Code that opens a log to standard output, as `logger`, in a child process. */
export const LOGGING = `
  import { logOutput } from '${import.meta.resolve('../../../src/process/log-output.ts')}';
  import { createLogger } from '${import.meta.resolve('../../../src/logger.ts')}';
  const output = logOutput({ onDropped: (lines) => logger.error({ lines }, 'dropped') });
  process.on('exit', output.end);
  const logger = createLogger('info', output);`;

/** Runs `code` with a log in a process whose standard output is of this kind and is not read yet. */
export function runUnread(kind: Kind, code: string) {
  const output = readableOutput(kind);
  const child = spawn(process.execPath, ['--input-type=module', '-e', LOGGING + code], {
    stdio: ['ignore', output.stdio, 'pipe', 'ipc'],
    env: COMPILE_CACHE,
    // A process that blocks can only be killed.
    timeout: 60_000,
    killSignal: 'SIGKILL',
  });
  const told = new Promise((resolve) => child.once('message', resolve));
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const gone = exited.then(() => 'the process is gone');
  return { child, output: output.of(child), told: Promise.race([told, gone]), exited };
}
