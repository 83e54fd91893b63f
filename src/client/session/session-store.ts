import { asRelayError } from '../transport/as-relay-error.ts';
import type { RelayError } from '../transport/relay-error.ts';
import type { BotClient } from './bot-client.ts';
import { ofClient } from './client-parts.ts';
import { type FollowedSession, followedSession } from './followed-session.ts';

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

/** Who is signed in, with what a page calls to change that. */
export interface SessionStore extends Pick<FollowedSession, 'subscribe' | 'getSnapshot'> {
  readonly actions: SessionActions;
}

const stores = new WeakMap<object, SessionStore>();

/** The store of the client's session. */
export function sessionStore(client: BotClient): SessionStore {
  return ofClient(stores, client, () => {
    const { setError, ...session } = followedSession(client);
    return { ...session, actions: sessionActions(client, setError) };
  });
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
