import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { sleep } from './wait.ts';

/** Memory has settled when it has moved by less than this share over the last few looks. */
const SETTLED_SHARE = 0.01;
const LOOKS = 5;
const LOOK_EVERY_MS = 400;
const SETTLE_TIMEOUT_MS = 20_000;
/** Has the kernel forget the peak of a process's memory so far (proc(5), `clear_refs`). */
const FORGET_PEAK = '5';

/** All of this file is for Linux, and counts a process together with the processes that it has started. */
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
    // The name before it may hold spaces.
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

/** Memory that is held (resident set, as `ps` and `top` show it), in bytes. */
export function rssBytes(pid: number): number {
  return sumOfStatus(pid, 'VmRSS');
}

/** The most memory that was held since `forgetPeak`, in bytes. */
export function peakRssBytes(pid: number): number {
  return sumOfStatus(pid, 'VmHWM');
}

export function forgetPeak(pid: number): void {
  for (const one of tree(pid)) writeFileSync(`/proc/${one}/clear_refs`, FORGET_PEAK);
}

function sumOfStatus(pid: number, field: string): number {
  const line = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm');
  return tree(pid)
    .map((one) => Number(line.exec(readFileSync(`/proc/${one}/status`, 'latin1'))?.[1] ?? 0) * 1024)
    .reduce((sum, bytes) => sum + bytes, 0);
}

/** How many files and sockets a process may open: Node lifts its soft limit to the hard one. */
export function openFilesLimit(): number {
  const limits = readFileSync('/proc/self/limits', 'latin1');
  const hard = /^Max open files\s+\S+\s+(\S+)/m.exec(limits)?.[1];
  return hard === 'unlimited' ? Number.POSITIVE_INFINITY : Number(hard);
}

/** The resident set once it has stood still for 2 s, or after 20 s, in bytes. */
export async function settledRssBytes(pid: number): Promise<number> {
  const looks: number[] = [];
  for (let waitedMs = 0; waitedMs < SETTLE_TIMEOUT_MS; waitedMs += LOOK_EVERY_MS) {
    looks.push(rssBytes(pid));
    const last = looks.slice(-LOOKS);
    const settled = Math.max(...last) - Math.min(...last) <= SETTLED_SHARE * Math.max(...last);
    if (last.length === LOOKS && settled) break;
    await sleep(LOOK_EVERY_MS);
  }
  return looks.at(-1) as number;
}
