import type { RequestHandler } from 'express';

/** `GET /healthz`: 200 while the process lives. */
export function health(): RequestHandler {
  return function health(_req, res) {
    res.json({ status: 'ok' });
  };
}

/** Whether something that the relay needs is there. A check that asks somebody else must have a deadline. */
export type Check = () => boolean | Promise<boolean>;

/**
 * `GET /readyz`: 200 if every check holds, else 503; the body names each check. A load balancer that asks
 * this sends no new requests while an instance shuts down, or is cut off from what it needs. What `notes` says
 * stands among the checks, and decides nothing.
 */
export function readiness(
  checks: Readonly<Record<string, Check>>,
  notes: () => Readonly<Record<string, string>> = () => ({}),
): RequestHandler {
  return async function readiness(_req, res) {
    const results = await Promise.all(
      Object.entries(checks).map(async ([name, holds]) => [name, (await holds()) ? 'ok' : 'failed'] as const),
    );
    const ready = results.every(([, result]) => result === 'ok');
    if (!ready) res.locals.outcome = 'not_ready';
    res.status(ready ? 200 : 503).json({
      status: ready ? 'ready' : 'not ready',
      checks: { ...Object.fromEntries(results), ...notes() },
    });
  };
}
