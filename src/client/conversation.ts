import { type Read, reader, readFact } from './answer-text.ts';
import type { BotClient } from './bot-client.ts';
import { chatState, type Snapshot } from './chat-state.ts';
import { conversationActions } from './conversation-actions.ts';
import { sessionActions } from './session-actions.ts';

export interface ConversationOptions {
  /** The conversation to show, with what was said before. Without it, each page and each session begins a new one. */
  readonly customChannelId?: string | undefined;
  /** Reads the text of an event where the usual way is not enough. */
  readonly read?: Read | undefined;
}

/** What a page can do. The promises never reject: a failure is the snapshot's `error`. */
export interface Actions {
  /** `blobIds` are files that were uploaded. Resolves when the answer has ended, even if it failed. */
  readonly send: (text: string, blobIds?: readonly string[]) => Promise<void>;
  /** Stops every answer that is under way, and its run. */
  readonly stop: () => void;
  /** Uploads a file for a message. Resolves with its `blobId`, or undefined if it failed. */
  readonly upload: (file: File) => Promise<string | undefined>;
  /** With `AUTH_MODE=password`. */
  readonly signIn: (username: string, password: string) => Promise<void>;
  /** With `AUTH_MODE=guest`. */
  readonly signInAsGuest: () => Promise<void>;
  /** With `AUTH_MODE=oidc`: the address to send the browser to. The browser returns to the path `returnTo`. */
  readonly signInUrl: (returnTo: string) => string;
  /** Also ends every answer. With `AUTH_MODE=oidc`, send the browser to `logoutUrl` if it is not null. */
  readonly signOut: () => Promise<{ readonly logoutUrl: string | null }>;
}

/** A conversation with one bot. Its listeners are called at most once per frame. */
export interface Conversation {
  /**
   * Adds a listener; the returned function removes it. The first listener makes the conversation ask who is signed in.
   * When the last one is removed, and none is added in the same task, all answers stop and nothing more is sent.
   */
  readonly subscribe: (listener: () => void) => () => void;
  readonly snapshot: () => Snapshot;
  readonly actions: Actions;
}

/** Makes a conversation for a page; it does not depend on a view library. */
export function conversation(client: BotClient, options: ConversationOptions = {}): Conversation {
  const { customChannelId, read } = options;
  const state = chatState();
  const current = () => client.conversation(customChannelId);
  const talk = conversationActions(
    { current, state, textOf: read ? reader(read) : readFact },
    customChannelId !== undefined,
  );
  const session = sessionActions(client, state, talk);
  const signedOut = () => state.change({ session: null });
  let isRunning = false;
  function begin(): void {
    isRunning = true;
    talk.begin();
    client.addEventListener('signed-out', signedOut);
    void session.refresh();
  }
  function end(): void {
    isRunning = false;
    talk.end();
    client.removeEventListener('signed-out', signedOut);
  }
  const { send, stop, upload } = talk;
  const { signIn, signInAsGuest, signOut } = session;
  return {
    subscribe(listener) {
      state.listeners.add(listener);
      if (!isRunning) begin();
      return () => {
        state.listeners.delete(listener);
        // React's StrictMode removes every listener and adds it again at once.
        queueMicrotask(() => {
          if (isRunning && state.listeners.size === 0) end();
        });
      };
    },
    snapshot: state.snapshot,
    actions: { send, stop, upload, signIn, signInAsGuest, signInUrl: client.signInUrl, signOut },
  };
}
