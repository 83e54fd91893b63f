import type { IncomingHttpHeaders } from 'node:http';
import type { Request, Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import { noSession, type Sessions } from '../authenticate/sessions/sessions.ts';
import { Problem } from '../errors.ts';
import type { AddressLimit, LimitByAddress } from '../pace/client-limits.ts';
import type { LimitByKey, RequestLimit } from '../pace/request-limits.ts';
import type { OpenKind, OpenMessages } from '../relay/message/open-messages.ts';
import { judgedLater } from './judged-later.ts';

/** What the first steps of every route of a bot need. */
export interface SessionFinding {
  readonly limitByAddress: LimitByAddress;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Pick<Sessions, 'keyOf' | 'read'>;
  readonly limitBySession: LimitByKey;
  readonly open: Pick<OpenMessages, 'add'>;
}

/** The same, of which the limits can count by their stores alone. */
export interface CountedFinding extends SessionFinding {
  readonly limitByAddress: AddressLimit;
  readonly limitBySession: RequestLimit;
}

/** The first steps of a message, the most frequent request: they spare it the middleware of express-rate-limit. */
export function findingByCount({
  limitByAddress,
  limitBySession,
  ...others
}: CountedFinding): SessionFinding {
  return {
    ...others,
    limitByAddress: limitByAddress.count,
    limitBySession: (_req, _res, key) => limitBySession.count(key),
  };
}

/** A request that has just come. */
export interface Arrival {
  readonly req: Request;
  readonly res: Response;
  /** Aborted when the client leaves, and from here on by a shutdown, and by the end of the session. */
  readonly stop: AbortController;
  /** Called when the request is over. */
  readonly releases: (() => void)[];
  readonly kind: OpenKind;
}

/**
 * Finds the session of a request, within its limits. They are asked together in one round trip, and judged in this
 * order: the limit by address, the origin, the session, the limit by session. A page of another origin is not counted
 * for the session. The request is open before its session is read: it is told of every end that the answer does not show.
 * @throws Problem `too_many_attempts`, `cross_origin` or `unauthenticated`; what has aborted the request
 */
export async function findSession(route: SessionFinding, arrival: Arrival): Promise<LiveSession> {
  const { req, res, stop } = arrival;
  let asked: AskedSession | undefined;
  let refusal: unknown;
  try {
    asked = askForSession(route, arrival);
  } catch (error) {
    refusal = error;
  }
  await route.limitByAddress(req, res);
  if (!asked) throw refusal;
  const found = await asked.session;
  await asked.limit;
  const { reason } = stop.signal;
  if (reason instanceof Problem && reason.code === 'session_ended') throw noSession();
  stop.signal.throwIfAborted();
  res.locals.userId = found.user.id;
  return found;
}

/** Both are judged later. */
interface AskedSession {
  readonly session: Promise<LiveSession>;
  readonly limit: Promise<void>;
}

/** @throws Problem `cross_origin` or `unauthenticated` if there is nothing to ask for */
function askForSession(route: SessionFinding, { req, res, stop, releases, kind }: Arrival): AskedSession {
  route.checkOrigin(req.headers);
  const key = route.sessions.keyOf(req);
  if (key === undefined) throw noSession();
  releases.push(route.open.add(stop, key, kind));
  const limit = judgedLater(route.limitBySession(req, res, key));
  return { limit, session: judgedLater(route.sessions.read(key)) };
}
