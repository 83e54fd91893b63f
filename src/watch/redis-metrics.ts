import type { Metrics } from './metrics.ts';

/** Makes the function that records a run of commands on Redis: how long it took, in ms, and whether it succeeded. */
export function redisMetrics({ redisRun }: Metrics): (ms: number, ok: boolean) => void {
  return (ms, ok) => redisRun.observe({ outcome: ok ? 'ok' : 'unavailable' }, ms / 1000);
}
