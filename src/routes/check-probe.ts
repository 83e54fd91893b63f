import type { Express } from 'express';
import { notFound } from '../arrive/problem-response.ts';
import { clientAddress } from '../http/client-address.ts';
import { arrivalsIn } from '../pace/arrivals.ts';
import { checkProbe, PROBE_PATH } from '../watch/check-probe.ts';
import { PROBE_WINDOW_MS, probeTokens } from '../watch/probe-tokens.ts';
import type { Parts } from './parts.ts';
import type { SharedSteps } from './shared-steps.ts';

/** The route by which `check` tests the proxies before the relay. Without a valid token it answers as an unknown path. */
export function checkProbeRoute(
  app: Express,
  { config, counts, redis }: Pick<Parts, 'config' | 'counts' | 'redis'>,
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
