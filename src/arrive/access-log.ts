import { createHmac, hkdfSync } from 'node:crypto';
import type { Request, RequestHandler } from 'express';
import type { Config } from '../config/config.ts';
import { clientAddress } from '../http/client-address.ts';
import { endingOf, levelOf, waitedMs } from '../http/locals.ts';
import type { Logger } from '../logger.ts';
import type { Secret } from '../secret.ts';

/**
 * Writes one line per request when the request is over; a probe that succeeded is logged at `debug` only.
 * The line never holds the path, query, headers or body of the request. `addressOf` says how its client is named.
 */
export function accessLog(logger: Logger, addressOf: (req: Request) => string | undefined): RequestHandler {
  // None of these fields can hold a secret, and the search for values to redact costs more than the line itself.
  const lines = logger.child({}, { redact: [] });
  return function accessLog(req, res, next) {
    const startedAt = performance.now();
    // Read now, since a closed connection has no address.
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

/** 96 bits, in base64url. */
const HASH_LENGTH = 16;

/**
 * Makes the function that names the client of a request in the log, as LOG_ADDRESSES says: by the address that limits
 * count, by a hash of it, or not at all. The hash has a key, since a plain one could be found by trying all addresses.
 */
export function loggedAddress({
  logAddresses,
  session,
}: Pick<Config, 'logAddresses' | 'session'>): (req: Request) => string | undefined {
  if (logAddresses === 'on') return clientAddress;
  if (logAddresses === 'off') return () => undefined;
  const [key] = session.secrets.map(keyOf) as [Uint8Array];
  return (req) =>
    createHmac('sha256', key).update(clientAddress(req)).digest('base64url').slice(0, HASH_LENGTH);
}

function keyOf(secret: Secret): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', secret.open(), '', 'bot-relay logged address', 32));
}
