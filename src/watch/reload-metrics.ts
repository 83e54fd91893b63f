import type { Metrics } from './metrics.ts';
import { zeroKeys } from './zero-keys.ts';

/**
 * Makes the function that counts a reload of the files of keys and bots, by whether the files could be used, and says
 * whether they can be used now. `keys` are
 * the fingerprints of all keys after the reload, so that the series of a new key start before its first use.
 */
export function reloadMetrics(metrics: Metrics): (ok: boolean, keys: readonly string[]) => void {
  // At the start they could be used: without that, the relay does not start.
  metrics.configurationValid.set(1);
  return (ok, keys) => {
    metrics.configurationValid.set(ok ? 1 : 0);
    metrics.reloads.inc({ outcome: ok ? 'ok' : 'failed' });
    zeroKeys(metrics, keys);
  };
}
