import type { RequestHandler, Response } from 'express';
import { PROBLEMS } from '../errors.ts';
import { endingOf } from '../http/ending.ts';
import type { Metrics } from './metrics.ts';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
const CODES = new Set([...Object.keys(PROBLEMS), 'ok', 'client_closed', 'client_stalled']);

/**
 * Counts every request when it is over, from what the stages have noted on `res.locals`; probes don't count,
 * since they would drown the ratios. The labels are the route's pattern, known methods and known codes: nothing
 * that came from outside.
 */
export function requestMetrics(metrics: Metrics): RequestHandler {
  return function requestMetrics(_req, res, next) {
    const startedAt = performance.now();
    // A message that waits for its slot learns of a client that left only after this, and then says how long it waited.
    res.once('close', () => setImmediate(() => count(res, startedAt, metrics)));
    next();
  };
}

function count(res: Response, startedAt: number, { requests, firstByte, slotWait }: Metrics): void {
  const { route = 'none', firstByteAt, slotWaitMs, isProbe } = res.locals;
  if (isProbe) return;
  const { method } = res.req;
  const { status, outcome } = endingOf(res);
  requests.inc({
    route,
    method: METHODS.has(method) ? method : 'other',
    status,
    code: CODES.has(outcome) ? outcome : 'other',
  });
  if (firstByteAt !== undefined) firstByte.observe((firstByteAt - startedAt) / 1000);
  if (slotWaitMs !== undefined) slotWait.observe({ outcome: slotOutcome(res) }, slotWaitMs / 1000);
}

/** What came of the wait for a slot; `given_up`: the client left, or the session or the process ended first. */
function slotOutcome({ locals }: Response): 'granted' | 'refused' | 'given_up' {
  // Also one that has had a slot, and gets no second one in time.
  if (locals.outcome === 'rate_limited') return 'refused';
  return locals.slot === undefined ? 'given_up' : 'granted';
}
