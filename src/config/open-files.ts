import { readFileSync } from 'node:fs';

/** How many files this process may open, which Node.js raises to the hard limit at its start; undefined if not on Linux. */
export function openFilesLimit(): number | undefined {
  try {
    const [, limit] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return limit === undefined ? undefined : Number(limit);
  } catch {
    return undefined;
  }
}
