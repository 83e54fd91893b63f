import type { Express } from 'express';
import type { Config } from '../config/config.ts';
import type { Check } from '../watch/metrics.ts';
import type { Parts } from './parts.ts';
import { route } from './route.ts';

/** The paths of the health probes. */
export function probePaths({ basePath }: Pick<Config, 'basePath'>): [healthz: string, readyz: string] {
  return [`${basePath}/healthz`, `${basePath}/readyz`];
}

/**
 * `GET /healthz`: 200 while the process runs. `GET /readyz`: 200 if everything that the relay needs is available, else
 * 503; the body names each check. A load balancer that probes it sends no new requests to an instance that shuts down.
 */
export function probeRoutes(app: Express, parts: Parts): void {
  const { config, lifecycle, redis, bots, metrics, open, runs } = parts;
  const [healthz, readyz] = probePaths(config);
  const checks = { accepting: async () => lifecycle.isReady(), ...(redis && { redis: redis.answers }) };
  metrics?.readAtScrape({ checks, openMessages: open.count, runBytes: () => runs.bytes() });
  route(app, healthz, {
    async get(_req, res) {
      res.locals.isProbe = true;
      res.json({ status: 'ok' });
    },
  });
  route(app, readyz, {
    async get(_req, res) {
      res.locals.isProbe = true;
      const { ready, results } = await readiness(checks);
      if (!ready) res.locals.outcome = 'not_ready';
      const notes = bots.lastFailure() ? { configuration: 'last reload failed' } : {};
      res.status(ready ? 200 : 503).json({
        status: ready ? 'ready' : 'not ready',
        checks: { ...results, ...notes },
      });
    },
  });
}

/** The results of all checks; ready only if all of them are ok. */
interface Readiness {
  readonly ready: boolean;
  readonly results: Readonly<Record<string, 'ok' | 'failed'>>;
}

/** Runs all checks at the same time. */
export async function readiness(checks: Readonly<Record<string, Check>>): Promise<Readiness> {
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, check]) => [name, (await check()) ? 'ok' : 'failed'] as const),
  );
  return { ready: results.every(([, result]) => result === 'ok'), results: Object.fromEntries(results) };
}
