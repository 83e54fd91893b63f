import { asRelayError } from './as-relay-error.ts';
import type { BotClient } from './bot-client.ts';
import { baseOf } from './calls.ts';
import { partsOf } from './client-parts.ts';
import { defaultChannels } from './default-channel.ts';
import { inBackground } from './in-background.ts';
import type { RelayError } from './relay-error.ts';
import type { Session } from './session-tracker.ts';
import { unfinished } from './unfinished.ts';

/** Pauses between the tries of the first question, in ms. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
const MAX_TRIES = 10;

export interface SessionSnapshot {
  /** Undefined until it is known, null if nobody is signed in. */
  readonly session: Session | null | undefined;
  /** Why it is not known, or why the last sign-in or sign-out has failed. */
  readonly error: RelayError | undefined;
}

/** Before anything is known. */
export const UNKNOWN: SessionSnapshot = { session: undefined, error: undefined };

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

/** Who is signed in, for all that shows it. Tabs of a browser tell each other of a sign-in and a sign-out. */
export interface SessionStore {
  /** Adds a listener; the returned function removes it. With the first one, the relay is asked. */
  readonly subscribe: (listener: () => void) => () => void;
  readonly getSnapshot: () => SessionSnapshot;
  /** Resolves when it is known who is signed in, or why it is not. */
  readonly known: () => Promise<SessionSnapshot>;
  /** Adds a function that is called when the user has signed out, or another one has signed in. */
  readonly onDrop: (drop: () => void) => () => void;
  readonly actions: SessionActions;
}

const stores = new WeakMap<BotClient, SessionStore>();

/** The store of the client's session. */
export function sessionStore(client: BotClient): SessionStore {
  const store = stores.get(client) ?? newStore(client);
  stores.set(client, store);
  return store;
}

function newStore(client: BotClient): SessionStore {
  const listeners = new Set<() => void>();
  const drops = new Set<() => void>();
  let snapshot = UNKNOWN;
  const set = (next: SessionSnapshot) => {
    snapshot = next;
    for (const listener of [...listeners]) listener();
  };
  const asking = firstQuestion(client, (error) => set({ session: undefined, error }));
  const tell = tabsOf(client, asking.begin);
  followTracker(client, {
    tell,
    drop: () => drops.forEach((drop) => void drop()),
    set: (session) => set({ session, error: undefined }),
    session: () => snapshot.session,
  });
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    if (listeners.size === 1) {
      tell.begin();
      if (snapshot.session === undefined) asking.begin();
    }
    return () => {
      if (!listeners.delete(listener) || listeners.size > 0) return;
      tell.close();
      asking.end();
    };
  };
  return {
    subscribe,
    getSnapshot: () => snapshot,
    known: () =>
      snapshot.session !== undefined
        ? Promise.resolve(snapshot)
        : new Promise((resolve) => {
            const leave = subscribe(() => {
              if (snapshot.session === undefined && !snapshot.error) return;
              leave();
              resolve(snapshot);
            });
            asking.begin();
          }),
    actions: sessionActions(client, (error) => set({ ...snapshot, error })),
    onDrop(drop) {
      drops.add(drop);
      return () => void drops.delete(drop);
    },
  };
}

function sessionActions(client: BotClient, setError: (error?: RelayError) => void): SessionActions {
  const trying = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
    setError(undefined);
    return work().catch((thrown) => void setError(asRelayError(thrown)));
  };
  return {
    signIn: async (username, password) => void (await trying(() => client.signIn(username, password))),
    signInAsGuest: async () => void (await trying(() => client.signInAsGuest())),
    signInUrl: client.signInUrl,
    signOut: async () => (await trying(() => client.signOut())) ?? { logoutUrl: null },
  };
}

interface Followed {
  readonly tell: Tabs;
  readonly drop: () => void;
  readonly set: (session: Session | null) => void;
  readonly session: () => Session | null | undefined;
}

/** Learns from all calls of the client who is signed in. */
function followTracker(client: BotClient, { tell, drop, set, session }: Followed): void {
  const { tracker, options } = partsOf(client);
  const names = unfinished(client);
  const channels = defaultChannels(options);
  let user: string | undefined;
  tracker.watch((found, isSignIn) => {
    // A message was accepted: somebody has signed in elsewhere.
    if (found === true) return void (session() === null && client.session().catch(() => {}));
    if (found === null || (found && user !== undefined && user !== found.user.id)) {
      drop();
      names.clear();
    }
    if (found || found === null) channels.forget(found?.user.id);
    if (found) {
      user = found.user.id;
      names.enter(user);
      if (isSignIn) tell.post('in');
    } else if (found === null) {
      user = undefined;
      tell.post('out');
    }
    set(found || null);
  });
}

/** Asks who is signed in, and again with pauses while the relay cannot say so. */
function firstQuestion(client: BotClient, onError: (error: RelayError) => void) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  async function ask(tries: number): Promise<void> {
    try {
      await client.session();
    } catch (thrown) {
      const error = asRelayError(thrown);
      onError(error);
      const isTemporary = error.status === 0 || error.status === 429 || error.status > 500;
      if (!isTemporary || tries >= MAX_TRIES || timer === undefined) return;
      const pauseMs = Math.max(FIRST_PAUSE_MS * 2 ** tries, (error.retryAfter ?? 0) * 1000);
      timer = inBackground(() => void ask(tries + 1), Math.min(pauseMs, LONGEST_PAUSE_MS));
    }
  }
  return {
    begin() {
      clearTimeout(timer);
      timer = setTimeout(ask, 0, 0);
    },
    end() {
      clearTimeout(timer);
      timer = undefined;
    },
  };
}

interface Tabs {
  readonly begin: () => void;
  readonly close: () => void;
  readonly post: (what: 'in' | 'out') => void;
}

/** The other tabs of this browser. `refresh` is called when this tab may have missed a change. */
function tabsOf(client: BotClient, refresh: () => void): Tabs {
  const { options, tracker } = partsOf(client);
  let tabs: BroadcastChannel | undefined;
  let isTold = false;
  // A page from the back/forward cache has missed the messages of other tabs.
  const onShow = ({ persisted }: PageTransitionEvent) => persisted && refresh();
  return {
    begin() {
      // Node.js has tabs of no browser, and the connection would keep it running.
      if (typeof location !== 'object') return;
      tabs = new BroadcastChannel(`bot-relay ${new URL(baseOf(options) || '/', location.href)}`);
      addEventListener('pageshow', onShow);
      tabs.onmessage = ({ data }) => {
        if (data === 'in') return refresh();
        isTold = true;
        tracker.learn(null);
        isTold = false;
      };
    },
    close() {
      tabs?.close();
      tabs = undefined;
      if (typeof location === 'object') removeEventListener('pageshow', onShow);
    },
    post: (what) => void (isTold || tabs?.postMessage(what)),
  };
}
