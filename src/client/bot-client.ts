import { type BotClientOptions, botCalls } from './bot-calls.ts';
import { type BotConversation, botConversation, resumed, type SendOptions } from './bot-conversation.ts';
import { baseOf, caller } from './calls.ts';
import { setParts } from './client-parts.ts';
import type { MessageStream } from './message-stream.ts';
import { randomId } from './random-id.ts';
import { sessionCalls } from './session-calls.ts';
import { type Session, sessionTracker } from './session-tracker.ts';
import { nameOf, unfinished } from './unfinished.ts';

export type { BotClientOptions } from './bot-calls.ts';
export type {
  BotConversation,
  ConversationMetadata,
  Feedback,
  SendOptions,
  ToolCallConsent,
} from './bot-conversation.ts';
export type { BotEvent, Facts, Guards, KnownEvent, PendingCall, UnknownEvent } from './bot-event.ts';
export type { MessageState, MessageStream } from './message-stream.ts';
export { RelayError } from './relay-error.ts';
export type { Session } from './session-tracker.ts';
export type { MessageStore } from './unfinished.ts';

/** One bot behind the relay. Dispatches the event `signed-out` once when an answer shows that the session is over. */
export interface BotClient extends EventTarget {
  /**
   * Sends a message: its text, or an object in the bot's own form. It is sent when its answer is first read; that fails
   * if somebody has signed in or out meanwhile.
   */
  send(message: string | object, options?: SendOptions): MessageStream;
  /**
   * The answers that had not ended when the page was left, the oldest first: see `BotConversation`. Those of `send` with
   * an object are there only if it has a `customChannelId` and a `customMessageId`, which is new for each message.
   */
  resume(options?: SendOptions): MessageStream[];
  /**
   * The conversation with this id. Without an id, it is the one of `send` with a text: a new one for each client and
   * each session.
   */
  conversation(customChannelId?: string): BotConversation;
  /** With `AUTH_MODE=password`. @throws RelayError */
  signIn(username: string, password: string): Promise<Session>;
  /** With `AUTH_MODE=guest`. @throws RelayError */
  signInAsGuest(): Promise<Session>;
  /** With `AUTH_MODE=oidc`: where to send the browser, `location.assign(client.signInUrl('/chat'))`. */
  signInUrl(returnTo: string): string;
  /** The current session; undefined if there is none. @throws RelayError */
  session(): Promise<Session | undefined>;
  /** With `AUTH_MODE=oidc`, send the browser to `logoutUrl` if it is not null. @throws RelayError */
  signOut(): Promise<{ readonly logoutUrl: string | null }>;
}

/**
 * A client of one bot, for browsers and Node.js. In Node.js it keeps the session cookie itself.
 * @throws TypeError if `baseUrl` is no address
 */
export function createBotClient(options: BotClientOptions): BotClient {
  const call = caller(options);
  const client = new EventTarget();
  const names = unfinished(options);
  const tracker = sessionTracker(() => {
    // The next user of this tab must not ask for them.
    names.clear();
    client.dispatchEvent(new Event('signed-out'));
  });
  const calls = botCalls(options, { call, tracker, unfinished: names });
  setParts(client, { options, calls, tracker });
  // The channel's id also holds the session's number, so that the next user does not continue this user's conversation.
  const channel = randomId();
  const conversation = (customChannelId = `${channel}-${tracker.current()}`) =>
    botConversation(calls, customChannelId, options);
  return Object.assign(client, sessionCalls(call, tracker), {
    conversation,
    send(message: string | object, sendOptions: SendOptions = {}) {
      if (typeof message === 'string') return conversation().send(message, sendOptions);
      // Serialized now, since the caller may change the object: a stream must be resumed with the same body.
      const body = JSON.stringify(message);
      const init = { method: 'POST', body } as const;
      return calls.stream(calls.pathOf('message/sse'), init, { ...sendOptions, name: nameOf(message) });
    },
    resume: (sendOptions?: SendOptions) => resumed(calls, sendOptions),
    signInUrl: (returnTo: string) => `${baseOf(options)}/auth/login?returnTo=${encodeURIComponent(returnTo)}`,
  });
}
