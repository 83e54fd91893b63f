import type { Request, RequestHandler } from 'express';
import { endingOf, levelOf } from '../http/ending.ts';
import { waitedMs } from '../http/locals.ts';
import type { Logger } from '../logger.ts';

/**
 * Writes one line per request when the request is over; a probe that succeeded is logged at `debug` only.
 * The line never holds the path, query, headers or body of the request. `addressOf` says how its client is named.
 */
export function accessLog(logger: Logger, addressOf: (req: Request) => string | undefined): RequestHandler {
  // None of these fields can hold a secret, and the search for values to redact costs more than the line itself.
  const lines = logger.child({}, { redact: [] });
  return function accessLog(req, res, next) {
    const startedAt = performance.now();
    // A connection that is closed has no address any more.
    const clientAddress = addressOf(req);
    res.on('close', () => {
      const { locals } = res;
      const { status, outcome } = endingOf(res);
      const level =
        locals.isProbe && outcome === 'ok' ? 'debug' : (locals.level ?? levelOf({ status, outcome }));
      lines[level](
        {
          requestId: locals.requestId,
          method: req.method,
          route: locals.route ?? 'none',
          status,
          outcome,
          cause: locals.cause,
          upstreamStatus: locals.upstreamStatus,
          durationMs: sinceMs(startedAt, performance.now()),
          firstByteMs: locals.stream?.firstByteAt && sinceMs(startedAt, locals.stream.firstByteAt),
          slotWaitMs: locals.slotWait && sinceMs(0, waitedMs(locals.slotWait)),
          stoppedMessages: locals.stoppedMessages,
          resumptions: locals.resumptions,
          notResumed: locals.notResumed,
          bytes: locals.stream?.bytes ?? Number(res.getHeader('content-length') ?? 0),
          clientAddress,
          account: locals.account,
          userId: locals.userId,
          sessionsEnded: locals.sessionsEnded?.count,
          sessionsEndedBy: locals.sessionsEnded?.by,
          bot: locals.bot,
        },
        'request',
      );
    });
    next();
  };
}

function sinceMs(from: number, to: number): number {
  return Math.round((to - from) * 10) / 10;
}
