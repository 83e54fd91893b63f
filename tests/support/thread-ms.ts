/**
 * The CPU time of this thread in which `run` runs, in ms. A clock would also count the time in which other processes have
 * the core.
 */
export function threadMs(run: () => unknown): number {
  const before = process.threadCpuUsage();
  run();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}
