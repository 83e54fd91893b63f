import type { RequestHandler } from 'express';
import { PROBLEMS, type ProblemCode } from '../errors.ts';
import { type Ending, endingOf } from '../http/ending.ts';
import { waitedMs } from '../http/locals.ts';
import type { Logger } from '../logger.ts';

/**
 * One line per request, when it is over; a probe that went well is told of at `debug` only. Fields: `requestId`, `method`, `route`, `status`, `outcome`,
 * `cause`, `upstreamStatus`, `durationMs`, `firstByteMs`, `slotWaitMs`, `bytes`, `userId`,
 * `sessionsEnded`, `sessionsEndedBy`, `bot`.
 * Never a path, query, header or body that came.
 */
export function accessLog(logger: Logger): RequestHandler {
  // Of these fields none can hold what would be redacted, and looking for it costs more than the line itself.
  const lines = logger.child({}, { redact: [] });
  return function accessLog(req, res, next) {
    const startedAt = performance.now();
    res.once('close', () => {
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
          bytes: locals.stream?.bytes ?? Number(res.getHeader('content-length') ?? 0),
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

/** A stream that fails has begun with 200: what ended it counts. */
function levelOf({ status, outcome }: Ending): 'info' | 'warn' | 'error' {
  const ending = Object.hasOwn(PROBLEMS, outcome) ? PROBLEMS[outcome as ProblemCode].status : status;
  if (ending === 500) return 'error';
  return ending > 500 ? 'warn' : 'info';
}

function sinceMs(from: number, to: number): number {
  return Math.round((to - from) * 10) / 10;
}
