import type { Express } from 'express';
import { notFound } from '../arrive/problem-response.ts';
import type { Config } from '../config/config.ts';
import { clientAddress } from '../http/client-address.ts';
import { arrivalsIn } from '../pace/arrivals.ts';
import { checkProbe, PROBE_PATH } from '../watch/check-probe.ts';
import type { Check } from '../watch/metrics.ts';
import { PROBE_WINDOW_MS, probeTokens } from '../watch/probe-tokens.ts';
import type { Dependencies } from './dependencies.ts';
import { route } from './route.ts';
import type { SharedSteps } from './shared-steps.ts';

/** The paths of the health probes. */
export function probePaths({ basePath }: Pick<Config, 'basePath'>): [healthz: string, readyz: string] {
  return [`${basePath}/healthz`, `${basePath}/readyz`];
}

/**
 * `GET /healthz`: 200 while the process runs. `GET /readyz`: 200 if everything that the relay needs is available, else
 * 503; the body names each check. A load balancer that probes it sends no new requests to an instance that shuts down.
 */
export function probeRoutes(app: Express, { config, bots, checks }: Dependencies): void {
  const [healthz, readyz] = probePaths(config);
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
      const notes = bots.canUseFiles() ? {} : { configuration: 'last reload failed' };
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

/** The route by which `check` tests the proxies before the relay. Without a valid token it answers as an unknown path. */
export function checkProbeRoute(
  app: Express,
  { config, counts, redis }: Pick<Dependencies, 'config' | 'counts' | 'redis'>,
  { limitByAddress }: Pick<SharedSteps, 'limitByAddress'>,
): void {
  const probe = checkProbe({
    tokens: probeTokens(config.session.secrets),
    arrivals: arrivalsIn(counts, 'check-probe', PROBE_WINDOW_MS),
    shared: redis !== undefined,
    addressOf: clientAddress,
  });
  app.post(config.basePath + PROBE_PATH, async (req, res) => {
    await limitByAddress(req, res);
    await probe(req, res, () => {
      throw notFound();
    });
  });
}
