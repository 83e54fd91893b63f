import type { Express, RequestHandler } from 'express';
import { notFound } from '../arrive/problem-response.ts';
import type { Config } from '../config/config.ts';
import { clientAddress } from '../http/client-address.ts';
import { arrivalsIn } from '../pace/arrivals.ts';
import type { Counts } from '../pace/request-limits.ts';
import { checkProbe, PROBE_PATH } from '../watch/check-probe.ts';
import { PROBE_WINDOW_MS, probeTokens } from '../watch/probe-tokens.ts';

export interface CheckProbeRoute {
  readonly config: Pick<Config, 'basePath' | 'session'>;
  readonly counts: Counts;
  /** What `counts` are in, where all instances share them. */
  readonly redis?: object | undefined;
  /** Limits what one address may ask; what it lets pass is a probe, or not found. */
  readonly byAddress: RequestHandler;
}

/** The route on which `check` proves what stands before the relay. It looks as if there were nothing. */
export function checkProbeRoute(app: Express, { config, counts, redis, byAddress }: CheckProbeRoute): void {
  const probe = checkProbe({
    tokens: probeTokens(config.session.secrets),
    arrivals: arrivalsIn(counts, 'check-probe', PROBE_WINDOW_MS),
    shared: redis !== undefined,
    addressOf: clientAddress,
  });
  app.post(config.basePath + PROBE_PATH, byAddress, probe, notFound());
}
