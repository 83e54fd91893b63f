import { readFileSync } from 'node:fs';
import { sleep } from './wait.ts';

/** Linux reports CPU time in these, whatever the kernel was built with (proc(5), USER_HZ). */
const TICK_MS = 10;
/** Memory has settled when it has moved by less than this share over the last few looks. */
const SETTLED_SHARE = 0.01;
const LOOKS = 6;
const LOOK_EVERY_MS = 500;
const SETTLE_TIMEOUT_MS = 20_000;

/** CPU time of a process so far, user and system together, in ms. Linux only, as all of this file. */
export function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  // The name before it may hold spaces; field 14 and 15 are utime and stime.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

/** Memory that a process holds (resident set, as `ps` and `top` show it), in bytes. */
export function rssBytes(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];
  return Number(kib) * 1024;
}

/** How many files and sockets a process may open: Node lifts its soft limit to the hard one. */
export function openFilesLimit(pid: number): number {
  const limits = readFileSync(`/proc/${pid}/limits`, 'latin1');
  const soft = /^Max open files\s+(\S+)/m.exec(limits)?.[1];
  return soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
}

/** The resident set once it stands still for 3 s, or after 20 s, in bytes. */
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
