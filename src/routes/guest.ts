import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { describeSession, type Sessions } from '../authenticate/sessions/sessions.ts';
import { Problem } from '../errors.ts';
import type { LimitByAddress, LimitByKey } from '../pace/request-limits.ts';
import type { Steps } from './route.ts';

interface GuestRoute {
  readonly limitByAddress: LimitByAddress;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Sessions;
  readonly limitBySession: LimitByKey;
  readonly limitNewGuests: LimitByAddress;
}

/**
 * `POST /auth/guest`: begins a session for an anonymous user with a random id. If the browser has a session already, the
 * session is kept and extended.
 */
export function guestSession(route: GuestRoute): Steps {
  const { sessions } = route;
  return async function guestSession(req, res) {
    await route.limitByAddress(req, res);
    route.checkOrigin(req.headers);
    const known = await sessions.find(req);
    if (known) {
      res.locals.userId = known.user.id;
      await route.limitBySession(req, res, known.key);
    }
    const used = known && (await sessions.use(known).catch(ifEnded));
    if (used) {
      res.json(describeSession(used));
      return;
    }
    await route.limitNewGuests(req, res);
    const session = await sessions.begin(req, res, { user: { id: `guest:${randomUUID()}`, name: 'Guest' } });
    res.locals.userId = session.user.id;
    res.json(describeSession(session));
  };
}

/** A session that has ended counts as none. */
function ifEnded(error: unknown): undefined {
  if (error instanceof Problem && error.code === 'unauthenticated') return;
  throw error;
}
