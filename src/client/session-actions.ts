import { asRelayError } from './as-relay-error.ts';
import type { BotClient, Session } from './bot-client.ts';
import type { ChatState } from './chat-state.ts';

/** What a session begins and ends. */
export interface SessionEffects {
  /** Ends all answers, but no run. */
  readonly leave: () => void;
  /** The relay has said that a user is signed in; `isNew` if it was not this user before. */
  readonly onUser: (isNew: boolean) => void;
}

/** The actions of a conversation that ask for, begin and end its session. */
export function sessionActions(client: BotClient, state: ChatState, { leave, onUser }: SessionEffects) {
  let previous: Promise<unknown> = Promise.resolve();
  let lastUser: string | undefined;
  /** Makes one call after the other, so that the answer to an older call never replaces a newer one. */
  function inSequence<T>(work: () => Promise<T>): Promise<T | undefined> {
    const done = previous.then(work).catch((thrown) => {
      state.change({ error: asRelayError(thrown) });
      return undefined;
    });
    previous = done;
    return done;
  }
  function setSession(session: Session | null): void {
    const isNew = session !== null && session.user.id !== lastUser;
    if (isNew && lastUser !== undefined) {
      // The next user must not see the conversation of the last one.
      leave();
      state.removeAll();
    }
    lastUser = session?.user.id ?? lastUser;
    state.change({ session });
    if (session) onUser(isNew);
  }
  async function signInBy(call: () => Promise<Session>): Promise<void> {
    state.change({ error: undefined });
    await inSequence(async () => setSession(await call()));
  }
  return {
    refresh: () => inSequence(async () => setSession((await client.session()) ?? null)),
    signIn: (username: string, password: string) => signInBy(() => client.signIn(username, password)),
    signInAsGuest: () => signInBy(() => client.signInAsGuest()),
    async signOut() {
      leave();
      state.change({ error: undefined });
      const answer = await inSequence(() => client.signOut());
      if (answer) setSession(null);
      return answer ?? { logoutUrl: null };
    },
  };
}
