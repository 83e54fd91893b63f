import { baseOf, caller, randomId } from '../transport/calls.ts';
import type { MessageStream, SendOptions } from '../transport/message-stream.ts';
import { type BotSettings, botCalls, nameOf } from './bot-calls.ts';
import { setInternals } from './client-internals.ts';
import { sessionCalls } from './session-calls.ts';
import { type Session, sessionTracker, tabsOf } from './session-tracker.ts';

/** One bot behind the relay. Dispatches the event `signed-out` once when an answer shows that the session is over. */
export interface BotClient extends EventTarget {
  /**
   * Sends a message, which is a paid run. It is sent when its answer is first read; that fails if somebody has signed in
   * or out meanwhile.
   * @param message Its text, in a conversation of this client and session, or an object as the bot service takes it. An
   * object is joined after a break only if it has a `customChannelId`, and a `customMessageId` that is new for each message.
   * @returns The answer. Reading it throws a RelayError, or the reason of `signal`.
   */
  send(
    message:
      | string
      | {
          /** The id of the conversation. */
          readonly customChannelId?: string | undefined;
          /** The id of the message. */
          readonly customMessageId?: string | undefined;
          /** What the user says. */
          readonly text?: string | undefined;
          /** `NONE` for a message, which is the default of the bot service. */
          readonly action?: 'NONE' | 'RESET_CHANNEL' | 'RESPONSE_TOOL_CALL_CONSENT' | undefined;
          /** What else the bot takes, in a form of its own. */
          readonly payload?: unknown;
          /** The ids of files that were uploaded in this conversation. */
          readonly blobIds?: readonly string[] | undefined;
          /** With `RESPONSE_TOOL_CALL_CONSENT`: what the user has decided. */
          readonly toolCallConsents?:
            | readonly {
                /** That of a pending call. */
                readonly toolCallId: string;
                /** Whether the bot may call it. */
                readonly result: 'ALLOW_ONCE' | 'ALLOW_ALWAYS' | 'DENY_ONCE';
              }[]
            | undefined;
        },
    options?: SendOptions,
  ): MessageStream;
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
   * @returns Null if nobody is signed in.
   * @throws RelayError
   */
  session(): Promise<Session | null>;
  /**
   * Ends the session.
   * @returns With `AUTH_MODE=oidc`, the page sends the browser to `logoutUrl` if that is not null.
   * @throws RelayError
   */
  signOut(): Promise<{ readonly logoutUrl: string | null }>;
}

/** A client without a key. @throws TypeError if `baseUrl` is no address */
export function relayClient(options: BotSettings): BotClient {
  const call = caller(options);
  const client = new EventTarget();
  const tracker = sessionTracker(() => client.dispatchEvent(new Event('signed-out')));
  const calls = botCalls(options, { call, tracker });
  const tabs = tabsOf(options);
  const internals = { options, calls, tracker, tabs };
  setInternals(client, internals);
  const channel = randomId();
  return Object.assign(client, sessionCalls(call, internals), {
    send(message: string | object, sendOptions: SendOptions = {}) {
      // With the number of the session, so that the next user does not continue the conversation of this one.
      const customChannelId = `${channel}-${tracker.current()}`;
      const ofText = { text: message, action: 'NONE', customMessageId: randomId(), customChannelId };
      const sent = typeof message === 'string' ? ofText : message;
      // Made to JSON now: a stream is resumed with the same body, and the caller may change the object meanwhile.
      const body = JSON.stringify(sent);
      const init = { method: 'POST', body } as const;
      return calls.stream(calls.pathOf('message/sse'), init, { ...sendOptions, name: nameOf(sent) });
    },
    signInUrl: (returnTo: string) => `${baseOf(options)}/auth/login?returnTo=${encodeURIComponent(returnTo)}`,
  });
}
