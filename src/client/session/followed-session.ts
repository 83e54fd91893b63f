import { asRelayError, callPage, type RelayError } from '../transport/relay-error.ts';
import type { BotClient } from './bot-client.ts';
import { internalsOf, ofClient } from './client-internals.ts';
import { forgetKept } from './kept.ts';
import { sessionQuestions } from './session-calls.ts';
import type { Session } from './session-tracker.ts';
import { unfinished } from './unfinished.ts';

/** Who is signed in. */
export interface SessionSnapshot {
  /** Undefined until it is known, null if nobody is signed in. */
  readonly session: Session | null | undefined;
  /** Why it is not known, or why the last sign-in or sign-out has failed. */
  readonly error: RelayError | undefined;
}

/** Before anything is known. */
export const UNKNOWN: SessionSnapshot = { session: undefined, error: undefined };

/** Who is signed in, followed for all that shows it. The tabs of a browser tell each other of sign-ins and sign-outs. */
export interface FollowedSession {
  /** Adds a listener; the returned function removes it. With the first one, the relay is asked. */
  readonly subscribe: (listener: () => void) => () => void;
  readonly getSnapshot: () => SessionSnapshot;
  /** Resolves when it is known who is signed in, or why it is not. */
  readonly known: () => Promise<SessionSnapshot>;
  /** Calls `drop` when the user has signed out, or another one has signed in. The returned function ends that. */
  readonly onDrop: (drop: () => void) => () => void;
  /** Shows why a sign-in or sign-out has failed. Without an error, one has begun, and the last error is removed. */
  readonly setError: (error?: RelayError) => void;
}

const sessions = new WeakMap<object, FollowedSession>();

/** The session of the client: the same one at each call. */
export function followedSession(client: BotClient): FollowedSession {
  return ofClient(sessions, client, () => newSession(client));
}

function newSession(client: BotClient): FollowedSession {
  const listeners = new Set<() => void>();
  const drops = new Set<() => void>();
  let snapshot = UNKNOWN;
  let end: () => void = () => {};
  const session = () => snapshot.session;
  const set = (next: SessionSnapshot) => {
    snapshot = next;
    for (const listener of [...listeners]) callPage(listener);
  };
  // A session that is known stays: the relay may only be away.
  const onError = (error: RelayError) => session() === undefined && set({ ...UNKNOWN, error });
  const asking = sessionQuestions(client, onError);
  const followed = followTracker(client, {
    drop: () => drops.forEach(callPage),
    set(found) {
      set({ session: found, error: undefined });
      asking.awaitEnd(found);
    },
    session,
  });
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    if (listeners.size === 1) {
      // Somebody may have signed in or out while nobody listened.
      snapshot = UNKNOWN;
      end = listenForChanges(client, { ...followed, session, ask: asking.begin });
      asking.begin();
    }
    return () => {
      if (!listeners.delete(listener) || listeners.size > 0) return;
      end();
      asking.end();
    };
  };
  return {
    subscribe,
    getSnapshot: () => snapshot,
    known: async () =>
      session() === undefined ? nextKnown(subscribe, () => snapshot, asking.begin) : snapshot,
    setError: (error) => set({ ...snapshot, error }),
    onDrop(drop) {
      drops.add(drop);
      return () => void drops.delete(drop);
    },
  };
}

/** Asks who is signed in. Resolves when that is known, or why it is not. */
function nextKnown(
  subscribe: FollowedSession['subscribe'],
  getSnapshot: () => SessionSnapshot,
  ask: () => void,
): Promise<SessionSnapshot> {
  return new Promise((resolve) => {
    const leave = subscribe(() => {
      const { session, error } = getSnapshot();
      if (session === undefined && !error) return;
      leave();
      resolve(getSnapshot());
    });
    ask();
  });
}

interface Following {
  readonly drop: () => void;
  readonly set: (session: Session | null | undefined) => void;
  readonly session: () => Session | null | undefined;
}

interface Followed {
  /** Another tab has told that this user is signed in: what another user has seen is dropped at once. */
  readonly told: (user: string) => void;
  /** The page was left, and the user has come back to it: if nobody is signed in now, that counts as a sign-out. */
  readonly returned: () => void;
}

/** Learns from all calls of the client who is signed in, and drops what a user leaves behind. */
function followTracker(client: BotClient, { drop, set, session }: Following): Followed {
  const { tracker, options } = internalsOf(client);
  // From now on, the names of messages are forgotten at the end of a session.
  unfinished(client);
  let user: string | undefined;
  let hasReturned = false;
  function leave(next?: string): void {
    drop();
    forgetKept(options, (of) => of === next);
    user = undefined;
  }
  tracker.watch((found) => {
    // The relay has accepted a call. If nobody was signed in, somebody has signed in elsewhere.
    if (found === true) return void (session() === null && client.session().catch(() => {}));
    if (found) {
      if (user !== undefined && user !== found.user.id) leave(found.user.id);
      user = found.user.id;
      forgetKept(options, (of) => of === null || of === user);
    } else if (found === null || (found === undefined && hasReturned)) leave();
    if (found !== false) hasReturned = false;
    set(found || null);
  });
  return {
    told(next) {
      if (user === undefined || user === next) return;
      leave(next);
      set(undefined);
    },
    returned() {
      hasReturned = true;
    },
  };
}

interface Changes extends Followed, Pick<Following, 'session'> {
  /** Asks who is signed in. */
  readonly ask: () => void;
}

/** Listens to what changes the session from outside of this client. The returned function ends that. */
function listenForChanges(client: BotClient, { told, returned, session, ask }: Changes): () => void {
  const { tracker, tabs } = internalsOf(client);
  const end = tabs.listen((user, isSignIn) => {
    if (user === null) return tracker.learn(null);
    told(user);
    if (isSignIn || session()?.user.id !== user) ask();
  });
  if (typeof location !== 'object') return end;
  // A page from the back/forward cache has missed what other tabs have told.
  const onShow = ({ persisted }: PageTransitionEvent) => {
    if (!persisted) return;
    returned();
    ask();
  };
  const onVisible = () => document.visibilityState === 'visible' && ask();
  addEventListener('pageshow', onShow);
  document.addEventListener('visibilitychange', onVisible);
  return () => {
    end();
    removeEventListener('pageshow', onShow);
    document.removeEventListener('visibilitychange', onVisible);
  };
}

/** The calls of a client that change who is signed in. They never reject: a failure is the snapshot's `error`. */
export interface SessionActions {
  /** With `AUTH_MODE=password`. */
  readonly signIn: (username: string, password: string) => Promise<void>;
  /** With `AUTH_MODE=guest`. */
  readonly signInAsGuest: () => Promise<void>;
  /** With `AUTH_MODE=oidc`: the address to send the browser to. The browser returns to the path `returnTo`. */
  readonly signInUrl: (returnTo: string) => string;
  /** With `AUTH_MODE=oidc`, send the browser to `logoutUrl` if it is not null. */
  readonly signOut: () => Promise<{ readonly logoutUrl: string | null }>;
}

const actions = new WeakMap<object, SessionActions>();

/** The functions of the client that change who is signed in: the same ones at each call. */
export function sessionActions(client: BotClient): SessionActions {
  return ofClient(actions, client, () => newActions(client));
}

function newActions(client: BotClient): SessionActions {
  const { setError } = followedSession(client);
  const attempt = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
    setError(undefined);
    return work().catch((thrown) => void setError(asRelayError(thrown)));
  };
  return {
    signIn: async (username, password) => void (await attempt(() => client.signIn(username, password))),
    signInAsGuest: async () => void (await attempt(() => client.signInAsGuest())),
    signInUrl: client.signInUrl,
    signOut: async () => (await attempt(() => client.signOut())) ?? { logoutUrl: null },
  };
}
