import { signingIn } from './access.ts';
import { type Read, readFact } from './answer-text.ts';
import { answering } from './answers.ts';
import type { BotClient } from './bot-client.ts';
import { chatState, type Snapshot } from './chat-state.ts';

export interface ConversationOptions {
  /** By default it reads what the bot service writes. */
  readonly read?: Read | undefined;
}

/** What a page can do. Nothing of it rejects: what goes wrong is the snapshot's `error`. */
export interface Actions {
  /** Resolves when the answer is over, however it ended. */
  readonly send: (text: string) => Promise<void>;
  /** Stops every answer that is under way. */
  readonly stop: () => void;
  /** With `AUTH_MODE=password`. */
  readonly signIn: (username: string, password: string) => Promise<void>;
  /** With `AUTH_MODE=guest`. */
  readonly signInAsGuest: () => Promise<void>;
  /** With `AUTH_MODE=oidc`: where to send the browser, which comes back to the path `returnTo`. */
  readonly signInUrl: (returnTo: string) => string;
  /** Stops every answer, too. With `AUTH_MODE=oidc`, `logoutUrl` is where to send the browser next, unless it is null. */
  readonly signOut: () => Promise<{ readonly logoutUrl: string | null }>;
}

/** A conversation with one bot, of which whoever has subscribed is told at most once per frame. */
export interface Conversation {
  /**
   * With the first listener it asks the relay who is signed in. Once the last has gone, and no other has come in the
   * same task, it stops the answers and sends nothing any more.
   */
  readonly subscribe: (listener: () => void) => () => void;
  readonly snapshot: () => Snapshot;
  readonly actions: Actions;
}

/** Keeps a conversation for a page, whatever draws it. */
export function conversation(client: BotClient, { read = readFact }: ConversationOptions = {}): Conversation {
  const state = chatState();
  const answers = answering(client, state, read);
  const access = signingIn(client, state, answers.stop);
  const signedOut = () => state.change({ session: null });
  let isRunning = false;
  function begin(): void {
    isRunning = true;
    answers.begin();
    client.addEventListener('signed-out', signedOut);
    void access.refresh();
  }
  function end(): void {
    isRunning = false;
    answers.end();
    client.removeEventListener('signed-out', signedOut);
  }
  const { send, stop } = answers;
  const { signIn, signInAsGuest, signOut } = access;
  return {
    subscribe(listener) {
      state.listeners.add(listener);
      if (!isRunning) begin();
      return () => {
        state.listeners.delete(listener);
        // React's rehearsal of effects (StrictMode) takes every listener away and brings it back at once.
        queueMicrotask(() => {
          if (isRunning && state.listeners.size === 0) end();
        });
      };
    },
    snapshot: state.snapshot,
    actions: { send, stop, signIn, signInAsGuest, signInUrl: client.signInUrl, signOut },
  };
}
