import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from '@jest/globals';
import { sleep } from '../clock/sleep.ts';

/** A `describe` for tests that need programs; `commands` have them print their versions. `packages` are those of Debian. */
export function describeWith(commands: readonly string[], packages: string) {
  const missing = commands.filter((command) => {
    const [name = '', ...args] = command.split(' ');
    return spawnSync(name, args).status !== 0;
  });
  if (missing.length === 0) return describe;
  const hint = `${missing.join(' and ')} cannot be run: apt-get install ${packages}`;
  if (process.env.CI === 'true') throw new Error(hint);
  process.stderr.write(`Tests are skipped: ${hint}\n`);
  return describe.skip;
}

const children: ChildProcess[] = [];
const folders: string[] = [];

/** Makes a temporary folder, which `stopPrograms` removes. */
export function programFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-program-'));
  folders.push(folder);
  return folder;
}

/** Starts a program whose home is `folder`; resolves with what it has printed, as soon as `isUp`. */
export async function startProgram(
  [program = '', ...args]: readonly string[],
  folder: string,
  isUp: () => boolean | Promise<boolean>,
): Promise<() => string> {
  const env = { PATH: process.env.PATH, HOME: folder };
  const child = spawn(program, args, { env, cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let printed = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
    });
  while (!(await isUp())) {
    if (child.exitCode !== null) throw new Error(`${program} did not start: ${printed}`);
    await sleep(20);
  }
  return () => printed;
}

/** Stops all programs and removes their folders; for `afterEach` or `afterAll`. */
export async function stopPrograms(): Promise<void> {
  for (const child of children.splice(0)) {
    if (child.exitCode !== null) continue;
    const gone = once(child, 'exit');
    // nginx ends its workers only if it is asked to.
    child.kill(child.spawnfile === 'nginx' ? 'SIGTERM' : 'SIGKILL');
    await gone;
  }
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
}
