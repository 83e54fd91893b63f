import { readdirSync, readFileSync } from 'node:fs';

/** Stops all processes of this process's browsers, as a laptop does that sleeps; the returned function wakes them. */
export function stopBrowsers(): () => void {
  const pids = descendants(process.pid).filter((pid) => /chrom/i.test(read(pid, 'cmdline')));
  if (pids.length === 0) throw new Error('no browser runs');
  const signal = (name: NodeJS.Signals) => {
    for (const pid of pids) process.kill(pid, name);
  };
  signal('SIGSTOP');
  return () => signal('SIGCONT');
}

function descendants(parent: number): number[] {
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => ({ pid: Number(name), parent: parentOf(Number(name)) }));
  const found: number[] = [];
  for (const ahead = [parent]; ahead.length > 0; ) {
    const next = ahead.pop();
    const children = all.filter((one) => one.parent === next).map(({ pid }) => pid);
    found.push(...children);
    ahead.push(...children);
  }
  return found;
}

/** The program's name may contain spaces and brackets, so the fields are those behind the last one. */
function parentOf(pid: number): number {
  const stat = read(pid, 'stat');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}

/** Empty if the process has ended. */
function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}
