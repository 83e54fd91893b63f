import { asRelayError } from './as-relay-error.ts';
import type { BotClient, Session } from './bot-client.ts';
import type { ChatState } from './chat-state.ts';

/** The session of a conversation. */
export function signingIn(client: BotClient, state: ChatState, stop: () => void) {
  let turn: Promise<unknown> = Promise.resolve();
  let lastUser: string | undefined;
  /** One call after the other, so that none is overtaken by the answer to an older one. */
  function inTurn<T>(work: () => Promise<T>): Promise<T | undefined> {
    const done = turn.then(work).catch((thrown) => {
      state.change({ error: asRelayError(thrown) });
      return undefined;
    });
    turn = done;
    return done;
  }
  function enter(session: Session | null): void {
    if (session && session.user.id !== (lastUser ?? session.user.id)) {
      // What somebody else has read and written is not for the eyes of the next one.
      stop();
      state.removeAll();
    }
    lastUser = session?.user.id ?? lastUser;
    state.change({ session });
  }
  async function enterBy(signIn: () => Promise<Session>): Promise<void> {
    state.change({ error: undefined });
    await inTurn(async () => enter(await signIn()));
  }
  return {
    refresh: () => inTurn(async () => enter((await client.session()) ?? null)),
    signIn: (username: string, password: string) => enterBy(() => client.signIn(username, password)),
    signInAsGuest: () => enterBy(() => client.signInAsGuest()),
    async signOut() {
      stop();
      state.change({ error: undefined });
      const answer = await inTurn(() => client.signOut());
      if (answer) enter(null);
      return answer ?? { logoutUrl: null };
    },
  };
}
