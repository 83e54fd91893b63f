import { randomBytes } from 'node:crypto';
import type { Request, Response } from 'express';
import { Problem } from '../../errors.ts';
import {
  extendedIdleLimit,
  type LiveSession,
  type ProviderSession,
  type Session,
  type SessionLimits,
  sessionKey,
  startSession,
  type User,
} from './session.ts';
import type { SessionCookie } from './session-cookie.ts';
import type { SessionStore } from './session-store.ts';

/** 192 random bits; the OWASP session management cheat sheet asks for at least 64. */
const ID_BYTES = 24;

/**
 * The sessions of the relay's users, as its routes use them. All methods throw Problem `session_store_unavailable` if
 * the store is out of reach.
 */
export interface Sessions {
  /** The key of the session that the request's cookie names, of which nothing is known; undefined if it names none. */
  keyOf(req: Request): string | undefined;
  /** The session with this key. @throws Problem `unauthenticated` if there is none or it has expired */
  read(key: string): Promise<LiveSession>;
  /** The session of the request's cookie; undefined if there is none or it has expired. */
  find(req: Request): Promise<LiveSession | undefined>;
  /**
   * The session of the request's cookie. The refusal has no redirect and no `WWW-Authenticate`: scripts call the relay,
   * and the browser must not show its own login box.
   * @throws Problem `unauthenticated`
   */
  require(req: Request): Promise<LiveSession>;
  /** Whether a session has ended with all those of its user. */
  hasEnded(session: LiveSession): Promise<boolean>;
  /** Refuses a session that has ended with all those of its user. @throws Problem `unauthenticated` */
  confirm(session: LiveSession): Promise<void>;
  /** Extends a session, since it is used now. @throws Problem `unauthenticated` if it has ended meanwhile */
  use(session: LiveSession): Promise<LiveSession>;
  /**
   * Begins a session with a new id and sets its cookie. The session of the request's cookie is removed.
   * @throws Problem `sign_in_failed` if the user was signed out meanwhile; what `confirm` rejects with
   */
  begin(req: Request, res: Response, who: SignedIn): Promise<LiveSession>;
  /** Ends a session and removes its cookie. */
  end(session: LiveSession, res: Response): Promise<void>;
  /** Ends all sessions of the session's user, this one too, and removes its cookie. */
  endAll(session: LiveSession, res: Response): Promise<void>;
}

/** The user who signs in, and the identity provider's session. */
export interface SignedIn extends ProviderSession {
  readonly user: User;
  /** Called when the session is stored: if it rejects, the session is removed and its cookie is not set. */
  readonly confirm?: () => Promise<void>;
}

export interface SessionsOptions {
  readonly store: SessionStore;
  readonly cookie: SessionCookie;
  readonly limits: SessionLimits;
}

/** Makes the sessions whose state is in `store`. */
export function openSessions({ store, cookie, limits }: SessionsOptions): Sessions {
  const keyIn = (header: string | undefined) => {
    const id = cookie.read(header);
    return id === undefined ? undefined : sessionKey(id);
  };
  // The store checks the idle limit. The absolute limit is sealed, so that no change in the store can move it.
  const live = (key: string, session: Session | undefined): LiveSession | undefined =>
    session && Date.now() < session.absoluteExpiresAt ? { ...session, key } : undefined;
  async function find(req: Request): Promise<LiveSession | undefined> {
    const key = keyIn(req.headers.cookie);
    return key === undefined ? undefined : live(key, await store.get(key));
  }
  async function end({ key }: LiveSession, res: Response): Promise<void> {
    await store.remove(key);
    res.append('Set-Cookie', cookie.clear());
  }

  return {
    keyOf: (req) => keyIn(req.headers.cookie),
    read: (key) => store.get(key).then((session) => live(key, session) ?? refuse()),
    find,
    async require(req) {
      return (await find(req)) ?? refuse();
    },
    hasEnded: (session) => store.hasEnded(session),
    async confirm(session) {
      if (await store.hasEnded(session)) throw noSession();
    },
    use(session) {
      const wanted = extendedIdleLimit(session, limits, Date.now());
      return store.extend(session, wanted).then((idleExpiresAt) => {
        if (typeof idleExpiresAt !== 'number') throw noSession();
        return { ...session, idleExpiresAt };
      });
    },
    begin: (req, res, who) => begin({ store, cookie, limits }, { req, res, who }),
    end,
    async endAll(session, res) {
      await store.removeUser(session.user.id);
      // Even if the store has lost its list of the user's sessions, this one ends.
      await end(session, res);
    },
  };
}

/** Begins a session; see `Sessions`. */
async function begin(
  { store, cookie, limits }: SessionsOptions,
  { req, res, who }: { readonly req: Request; readonly res: Response; readonly who: SignedIn },
): Promise<LiveSession> {
  const { user, confirm = async () => {}, ...provider } = who;
  const old = cookie.read(req.headers.cookie);
  if (old !== undefined) await store.remove(sessionKey(old));
  const id = randomBytes(ID_BYTES).toString('base64url');
  const { providerSession } = provider;
  const startedAt = await store.startTime({ userId: user.id, providerSession });
  const session: Session = { ...startSession(user, limits, Date.now()), startedAt, ...provider };
  const key = sessionKey(id);
  if (!(await store.set(key, session))) throw SIGNED_OUT_MEANWHILE;
  await confirm().catch(async (error) => {
    // If this fails, the session stays, but no client has its id.
    await store.remove(key).catch(() => {});
    throw error;
  });
  res.append('Set-Cookie', cookie.set(id));
  return { ...session, key };
}

/** The refusal of a sign-in whose user was signed out before it was complete. */
export const SIGNED_OUT_MEANWHILE = new Problem(
  'sign_in_failed',
  'You were signed out while you signed in. Try again.',
  { cause: 'signed_out_meanwhile' },
);

function refuse(): never {
  throw noSession();
}

/** The refusal of a request without a session. */
export function noSession(): Problem {
  return new Problem('unauthenticated', 'You are not signed in. Sign in and try again.');
}

/** What a client sees of a session: its user, and its two limits in ISO 8601. */
export function describeSession({ user, idleExpiresAt, absoluteExpiresAt }: Session) {
  return {
    user: { id: user.id, name: user.name },
    idleExpiresAt: new Date(idleExpiresAt).toISOString(),
    absoluteExpiresAt: new Date(absoluteExpiresAt).toISOString(),
  };
}
