import type { RequestHandler, Response } from 'express';
import { PROBLEMS } from '../errors.ts';
import { endingOf, waitedMs } from '../http/locals.ts';
import type { Metrics } from './metrics.ts';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
const CODES = new Set([...Object.keys(PROBLEMS), 'ok', 'client_closed', 'client_stalled']);

/**
 * Counts every request when it is over, from `res.locals`. Probes are not counted, since their number would hide changes
 * in the ratios. The labels are the route's pattern, known methods and known codes, never texts from outside.
 */
export function requestMetrics(metrics: Metrics): RequestHandler {
  return function requestMetrics(_req, res, next) {
    const startedAt = performance.now();
    res.on('close', () => {
      // When a client leaves, a message that waits for its slot ends after `close`; only then its wait is complete.
      if (res.writableFinished) count(res, startedAt, metrics);
      else setImmediate(() => count(res, startedAt, metrics));
    });
    next();
  };
}

function count(res: Response, startedAt: number, { requests, firstByte, slotWait }: Metrics): void {
  const { route = 'none', stream, slotWait: wait, isProbe, isLive } = res.locals;
  if (isProbe) return;
  const { method } = res.req;
  const { status, outcome } = endingOf(res);
  requests.inc({
    route,
    method: METHODS.has(method) ? method : 'other',
    status,
    code: CODES.has(outcome) ? outcome : 'other',
  });
  // The two histograms are about messages: other operations have budgets and times of their own.
  if (isLive || !route.endsWith('/message/sse')) return;
  if (stream?.firstByteAt !== undefined) firstByte.observe((stream.firstByteAt - startedAt) / 1000);
  if (wait) slotWait.observe({ outcome: wait.outcome }, waitedMs(wait) / 1000);
}
