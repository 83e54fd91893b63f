import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from '@jest/globals';

const hasProc = existsSync('/proc/self/status');
if (!hasProc && process.env.CI === 'true')
  throw new Error('/proc is missing; the memory of a process is read from it');
if (!hasProc) console.warn('Skipped: the memory of a process is read from /proc, which is missing here');

/** A `test` that reads the memory of a process. */
export const testWithProc = hasProc ? test : test.skip;

/** The resident memory of a process, in bytes. */
export function residentBytes(pid: number): number {
  return statusBytes(pid, 'VmRSS');
}

/** Starts to watch the resident memory of a process; the returned function returns its peak since then, in bytes. */
export function watchResident(pid: number): () => number {
  // Resets the peak that Linux keeps.
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  return () => statusBytes(pid, 'VmHWM');
}

function statusBytes(pid: number, name: string): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, kilobytes] = status.match(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm')) ?? [];
  return Number(kilobytes) * 1024;
}
