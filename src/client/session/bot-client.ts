import type { MessageStream, SendOptions } from '../transport/message-stream.ts';
import type { BotClientOptions } from './bot-calls.ts';
import { directConnect } from './direct-connect.ts';
import { relayClient } from './relay-client.ts';
import type { Session } from './session-tracker.ts';

export type {
  BotEvent,
  BotMessage,
  CalledTool,
  EventHead,
  Facts,
  Guards,
  KnownEvent,
  PendingCall,
  TextMessage,
  Tool,
  UnknownEvent,
} from '../transport/bot-event.ts';
export type { MessageState, MessageStream, OnState, SendOptions } from '../transport/message-stream.ts';
export {
  type ClientErrorCode,
  RelayError,
  type RelayErrorFields,
  type Retryable,
} from '../transport/relay-error.ts';
export type { BotClientOptions } from './bot-calls.ts';
export type { MessageStore } from './kept.ts';
export type { Session } from './session-tracker.ts';

/** One bot behind the relay. Dispatches the event `signed-out` once when an answer shows that the session is over. */
export interface BotClient extends EventTarget {
  /**
   * Sends a message, which is a paid run. It is sent when its answer is first read; that fails if somebody has signed in
   * or out meanwhile.
   * @param message Its text, in a conversation of this client and session, or an object in the bot's own form. An object
   * is joined after a break only if it has a `customChannelId`, and a `customMessageId` that is new for each message.
   * @returns The answer. Reading it throws a RelayError, or the reason of `signal`.
   */
  send(message: string | object, options?: SendOptions): MessageStream;
  /**
   * Signs in with a password, with `AUTH_MODE=password`.
   * @throws RelayError
   */
  signIn(username: string, password: string): Promise<Session>;
  /**
   * Makes a guest and signs them in, with `AUTH_MODE=guest`.
   * @throws RelayError
   */
  signInAsGuest(): Promise<Session>;
  /**
   * Where to send the browser to sign in, with `AUTH_MODE=oidc`: `location.assign(client.signInUrl('/chat'))`.
   * @param returnTo The path to which the browser returns.
   */
  signInUrl(returnTo: string): string;
  /**
   * Asks for the current session.
   * @returns Undefined if nobody is signed in.
   * @throws RelayError
   */
  session(): Promise<Session | undefined>;
  /**
   * Ends the session.
   * @returns With `AUTH_MODE=oidc`, the page sends the browser to `logoutUrl` if that is not null.
   * @throws RelayError
   */
  signOut(): Promise<{ readonly logoutUrl: string | null }>;
}

/**
 * A client of one bot, for browsers and Node.js.
 * @throws TypeError if `baseUrl` is no address, or if `apiKey` is given in a browser
 */
export function createBotClient(options: BotClientOptions): BotClient {
  return relayClient(options.apiKey === undefined ? options : directConnect(options));
}
