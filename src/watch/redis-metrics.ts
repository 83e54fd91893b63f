import type { Metrics } from './metrics.ts';

/** Keeps the metric of runs on Redis: how long each took, in ms, and whether it went well. */
export function redisMetrics({ redisRun }: Metrics): (ms: number, ok: boolean) => void {
  return (ms, ok) => redisRun.observe({ outcome: ok ? 'ok' : 'unavailable' }, ms / 1000);
}
