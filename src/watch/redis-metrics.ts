import type { Metrics } from './metrics.ts';

/** Makes the function that records a run of commands on Redis: how long it took, in ms, and whether it succeeded. */
export function redisMetrics({ redisRun }: Metrics): (ms: number, ok: boolean) => void {
  // Made once: a message asks Redis several times.
  const [succeeded, failed] = [
    redisRun.labels({ outcome: 'ok' }),
    redisRun.labels({ outcome: 'unavailable' }),
  ];
  return (ms, ok) => (ok ? succeeded : failed).observe(ms / 1000);
}
