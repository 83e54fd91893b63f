import type { ChildProcess } from 'node:child_process';

/** Made by `test-environment.js`, which kills these after the last test of the file. */
const { childProcesses } = globalThis as { readonly childProcesses?: Set<ChildProcess> };

/** Ends a process with its test file at the latest, also if a test fails before it has ended the process itself. */
export function endsWithFile<T extends ChildProcess>(child: T): T {
  childProcesses?.add(child);
  return child;
}
