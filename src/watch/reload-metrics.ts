import { type Metrics, zeroKeys } from './metrics.ts';

/**
 * Counts reloads of the files of keys and bots: whether they could be used. `keys` are the fingerprints of the keys
 * that there are from then on: a new one is known to the metrics before its first use.
 */
export function reloadMetrics(metrics: Metrics): (ok: boolean, keys: readonly string[]) => void {
  return (ok, keys) => {
    metrics.reloads.inc({ outcome: ok ? 'ok' : 'failed' });
    zeroKeys(metrics, keys);
  };
}
