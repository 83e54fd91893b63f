import type { IncomingHttpHeaders } from 'node:http';
import type { Request, Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import { noSession, type Sessions } from '../authenticate/sessions/sessions.ts';
import { loggedBot } from '../bots/allow-list.ts';
import { Problem } from '../errors.ts';
import type { LimitByAddress, LimitByKey } from '../pace/request-limits.ts';
import type { OpenKind, OpenMessages } from '../relay/message/open-messages.ts';

/** What the first steps of every route of a bot need. */
export interface SessionFinding {
  readonly limitByAddress: LimitByAddress;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Pick<Sessions, 'keyOf' | 'read'>;
  readonly limitBySession: LimitByKey;
  readonly open: Pick<OpenMessages, 'add'>;
}

/** A request that has just come. */
export interface RequestArrival {
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
export async function findSession(route: SessionFinding, arrival: RequestArrival): Promise<LiveSession> {
  const { req, res, stop, releases, kind } = arrival;
  res.locals.bot = loggedBot(req.params);
  const counted = route.limitByAddress(req, res);
  let key: string;
  try {
    key = keyOf(route, req);
  } catch (refusal) {
    await counted;
    throw refusal;
  }
  releases.push(route.open.add(stop, key, kind));
  const asked = [counted, route.sessions.read(key), route.limitBySession(req, res, key)] as const;
  const [, session] = await Promise.allSettled(asked);
  // Every refusal names the user, too.
  if (session.status === 'fulfilled') res.locals.userId = session.value.user.id;
  await asked[0];
  const found = await asked[1];
  await asked[2];
  const { reason } = stop.signal;
  if (reason instanceof Problem && reason.code === 'session_ended') throw noSession();
  stop.signal.throwIfAborted();
  return found;
}

/** @throws Problem `cross_origin` or `unauthenticated` if there is nothing to ask for */
function keyOf(route: SessionFinding, req: Request): string {
  route.checkOrigin(req.headers);
  const key = route.sessions.keyOf(req);
  if (key === undefined) throw noSession();
  return key;
}
