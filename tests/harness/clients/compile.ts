import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { ROOT } from '../documents/sources.ts';
import { releasePath } from './release-packages.ts';

/** The newest version of the compiler, and older ones that users of the package have. */
export type Compiler = 'typescript' | 'typescript-6' | 'typescript-5.4';

/** The newest compiler is a Go program. On one thread and without garbage collection it takes a third less CPU time. */
const ENVIRONMENT = { GOMAXPROCS: '1', GOGC: 'off' };

/** Runs a compiler with the configuration in the file `config`, in its folder. `found` is what it prints. */
export async function compile(config: string, compiler: Compiler = 'typescript') {
  const folder = compiler === 'typescript' ? join(ROOT, 'node_modules/typescript') : releasePath(compiler);
  const path = join(folder, 'bin/tsc');
  const options = { cwd: dirname(config), env: { ...process.env, ...ENVIRONMENT } };
  const tsc = spawn(process.execPath, [path, '-p', config], options);
  const [found, fault, [status]] = await Promise.all([
    text(tsc.stdout),
    text(tsc.stderr),
    once(tsc, 'close'),
  ]);
  return { found, fault, status: status as number | null };
}
