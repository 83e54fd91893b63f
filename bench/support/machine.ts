import { cpus, release, totalmem } from 'node:os';

/** The machine in one line: processor, cores, memory, kernel. */
export function machine(): string {
  const model = cpus()[0]?.model.trim() ?? 'unknown processor';
  const gib = Math.round(totalmem() / 2 ** 30);
  const kernel = release().split('.', 2).join('.');
  return `${model}, ${cpus().length} cores, ${gib} GiB, Linux ${kernel}`;
}
