import { baseOf, type CallsOptions, randomId } from '../transport/calls.ts';

/** A session's user, and its two limits in ISO 8601. */
export interface Session {
  /** Who is signed in. */
  readonly user: {
    /** Stays the same; a guest has another one in each session. */
    readonly id: string;
    /** To show. */
    readonly name: string;
  };
  /** When it ends if nothing is asked until then. */
  readonly idleExpiresAt: string;
  /** When it ends in every case. */
  readonly absoluteExpiresAt: string;
}

/** Learns from the answers of the relay whether somebody is signed in, and numbers the sessions. */
export interface SessionTracker {
  /** The number of the current session. An answer to a call of an older session says nothing about this one. */
  readonly current: () => number;
  /** Aborted at the end of the current session. */
  readonly ended: () => AbortSignal;
  /** The id of the user who is signed in; null if it is not known. */
  readonly user: () => string | null;
  /**
   * Takes what a call has found: the session, or undefined if there is none. A call that does not return the session has
   * found true if the relay accepted it, else false; a sign-out has found null. `askedIn` is the number of the session in
   * which the call began. It is left out for a sign-in.
   */
  readonly learn: (found: Found, askedIn?: number) => void;
  /** Calls `watcher` with each `found` that counts. There is one watcher. */
  readonly watch: (watcher: Watcher) => void;
}

type Found = Session | boolean | null | undefined;
type Watcher = (found: Found) => void;

/** The tracker of one client. `onEnd` is called once for each session that has ended. */
export function sessionTracker(onEnd: () => void): SessionTracker {
  let signedIn: boolean | undefined;
  /** The absolute limit of the session. It never changes during a session, so it tells sessions apart. */
  let limit: string | undefined;
  let user: string | null = null;
  let number = 0;
  let session = new AbortController();
  let tell: Watcher = () => {};
  return {
    watch(watcher) {
      tell = watcher;
    },
    current: () => number,
    ended: () => session.signal,
    user: () => user,
    learn(found, askedIn) {
      // The streams of the session end with a sign-out, and may have told so before.
      const isKnown = found === null && signedIn === false;
      if (number !== (askedIn ?? number) && !isKnown) return;
      // A page that sends a message or signs out expects a session, even if nothing is known yet.
      const wasSignedIn = signedIn ?? (found === false || found === null);
      signedIn = !!found;
      const before = limit;
      limit = (found as Session | null | undefined)?.absoluteExpiresAt ?? before;
      if (found !== true) user = found ? found.user.id : null;
      // With another limit, somebody has signed in elsewhere, such as in another tab.
      if (!found || askedIn === undefined || (before ?? limit) !== limit) {
        number++;
        session.abort();
        session = new AbortController();
      }
      if (!found && wasSignedIn) onEnd();
      tell(found);
    },
  };
}

/** Called when another tab or client has learned who is signed in: the id of the user, null after a sign-out. */
type OnTold = (user: string | null, isSignIn: boolean) => void;

/** The other tabs of this browser, and the other clients of this page, at the same relay. */
export interface Tabs {
  /** By what the others know this client. */
  readonly own: string;
  /** Tells them who is signed in, if that is a change or a sign-in. */
  readonly tell: (user: string | null | undefined, isSignIn?: boolean) => void;
  /** Calls `onTold` when another one tells who is signed in. The returned function ends that. */
  readonly listen: (onTold: OnTold) => () => void;
}

/** The types of Node.js name the class alone. */
type TabsChannel = InstanceType<typeof BroadcastChannel>;

/** Opens a channel between all tabs that have a client of this relay. In Node.js there is none. */
export function tabsChannel(name: string, options: CallsOptions): TabsChannel | undefined {
  // A process of Node.js would not end as long as it is open.
  if (typeof location !== 'object') return undefined;
  return new BroadcastChannel(`${name} ${new URL(baseOf(options) || '/', location.href)}`);
}

/** The tabs in which a client of these options can be. In Node.js there are none. */
export function tabsOf(options: CallsOptions): Tabs {
  const own = randomId();
  let last: string | null | undefined;
  const open = () => tabsChannel('bot-relay', options);
  return {
    own,
    tell(user, isSignIn = false) {
      const isNews = user !== undefined && (user !== last || isSignIn);
      last = user;
      if (!isNews) return;
      const tabs = open();
      tabs?.postMessage([own, user, isSignIn]);
      tabs?.close();
    },
    listen(onTold) {
      const tabs = open();
      if (tabs)
        tabs.onmessage = ({ data: [from, user, isSignIn] }) => {
          if (from === own) return;
          last = user;
          onTold(user, isSignIn);
        };
      return () => tabs?.close();
    },
  };
}
