import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { sleep } from './wait.ts';

/** Memory has settled when it changed by less than this share in the last few measurements. */
const SETTLED_SHARE = 0.01;
const SETTLED_MEASUREMENTS = 5;
const MAX_MEASUREMENTS = 50;
/** Resets the peak of a process's memory (proc(5), `clear_refs`). */
const RESET_PEAK = '5';

/** A process and all processes that it has started. This file needs Linux. */
function tree(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc')) {
    const child = Number(name);
    const parent = Number.isNaN(child) ? undefined : parentOf(child);
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), child]);
  }
  const found = [pid];
  for (const one of found) found.push(...(children.get(one) ?? []));
  return found;
}

function parentOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name before it may contain spaces.
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    // It has ended since it was listed.
    return undefined;
  }
}

/** CPU time so far, user and system together, of all threads, in µs; exact to the ns, unlike `/proc/PID/stat`. */
export function cpuUs(pid: number): number {
  let ns = 0;
  for (const one of tree(pid)) {
    for (const thread of readdirSync(`/proc/${one}/task`)) {
      ns += Number(readFileSync(`/proc/${one}/task/${thread}/schedstat`, 'latin1').split(' ', 1)[0]);
    }
  }
  return ns / 1000;
}

/** The resident memory, as `ps` and `top` show it, in bytes. */
export function rssBytes(pid: number): number {
  return sumOfStatus(pid, 'VmRSS');
}

/** The peak of the resident memory since `resetPeak`, in bytes. */
export function peakRssBytes(pid: number): number {
  return sumOfStatus(pid, 'VmHWM');
}

export function resetPeak(pid: number): void {
  for (const one of tree(pid)) writeFileSync(`/proc/${one}/clear_refs`, RESET_PEAK);
}

function sumOfStatus(pid: number, field: string): number {
  const line = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm');
  return tree(pid)
    .map((one) => Number(line.exec(readFileSync(`/proc/${one}/status`, 'latin1'))?.[1] ?? 0) * 1024)
    .reduce((sum, bytes) => sum + bytes, 0);
}

/** The resident memory when it has not changed for five measurements, or after fifty, in bytes. */
export async function settledRssBytes(pid: number, measureEveryMs: number): Promise<number> {
  const measured: number[] = [];
  while (measured.length < MAX_MEASUREMENTS) {
    measured.push(rssBytes(pid));
    const last = measured.slice(-SETTLED_MEASUREMENTS);
    const settled = Math.max(...last) - Math.min(...last) <= SETTLED_SHARE * Math.max(...last);
    if (last.length === SETTLED_MEASUREMENTS && settled) break;
    await sleep(measureEveryMs);
  }
  return measured.at(-1) as number;
}
