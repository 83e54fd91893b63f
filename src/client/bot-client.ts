import { baseOf, caller, streamOf } from './calls.ts';
import { type MessageState, type MessageStream, messageStream } from './message-stream.ts';
import { RelayError } from './relay-error.ts';
import { isSignedOut, sessionCalls } from './session-calls.ts';
import { type Session, sessionEras } from './session-eras.ts';

export type { MessageState, MessageStream } from './message-stream.ts';
export type { BotEvent } from './read-events.ts';
export { RelayError } from './relay-error.ts';
export type { Session } from './session-eras.ts';

/** Three times what the relay lets a stream be silent. */
const SILENCE_MS = 45_000;

/** The bot service's own settings, but for the key. */
export interface BotClientOptions {
  /** The relay, with its base path: `https://chat.example.com`, `/chat-api`, or empty for the page's own origin. */
  readonly baseUrl: string;
  readonly namespace: string;
  readonly botProviderName: string;
  /** A stream in which nothing comes for so long, in ms, is dead: at least twice the relay's `HEARTBEAT_MS`. */
  readonly silenceMs?: number;
  /** In place of the global `fetch`. */
  readonly fetch?: typeof fetch;
}

export interface SendOptions {
  /** Stops the message, and with it the bot's run. */
  readonly signal?: AbortSignal | undefined;
  readonly onState?: ((state: MessageState) => void) | undefined;
}

/** One bot behind the relay. Dispatches `signed-out` once when the session turns out to be over. */
export interface BotClient extends EventTarget {
  /** A message as the bot takes it, or its text alone. It is sent when its answer is read, if nobody has signed in or out by then. */
  send(message: string | object, options?: SendOptions): MessageStream;
  /** With `AUTH_MODE=password`. @throws RelayError */
  signIn(username: string, password: string): Promise<Session>;
  /** With `AUTH_MODE=guest`. @throws RelayError */
  signInAsGuest(): Promise<Session>;
  /** With `AUTH_MODE=oidc`: where to send the browser, `location.assign(client.signInUrl('/chat'))`. */
  signInUrl(returnTo: string): string;
  /** The session there is; undefined if there is none. @throws RelayError */
  session(): Promise<Session | undefined>;
  /** With `AUTH_MODE=oidc`, `logoutUrl` is where to send the browser next, if it is not null. @throws RelayError */
  signOut(): Promise<{ readonly logoutUrl: string | null }>;
}

/** A client of one bot, for browsers and for Node, where it keeps the session cookie itself. */
export function createBotClient(options: BotClientOptions): BotClient {
  const { namespace, botProviderName, silenceMs = SILENCE_MS } = options;
  const path = `/generic/ns/${encodeURIComponent(namespace)}/bot-provider/${encodeURIComponent(botProviderName)}/message/sse`;
  const call = caller(options);
  // With the era, so that who signs in next does not go on in the conversation of who was there before.
  const channel = randomId();
  const client = new EventTarget();
  const eras = sessionEras(() => client.dispatchEvent(new Event('signed-out')));
  return Object.assign(client, sessionCalls(call, eras), {
    send(message: string | object, options: SendOptions = {}) {
      const asked = eras.now();
      // Now, since the caller may change the object later: a stream is resumed with the body that was sent.
      const body = JSON.stringify(
        typeof message === 'string'
          ? {
              text: message,
              action: 'NONE',
              customChannelId: `${channel}-${asked}`,
              customMessageId: randomId(),
            }
          : message,
      );
      return messageStream({
        ...options,
        silenceMs,
        async post(signal, lastEventId) {
          // Nobody's message is sent, or resumed, in the name of who has signed in since.
          if (asked !== eras.now())
            throw new RelayError('Signed out.', { code: 'session_ended', status: 401 });
          const response = await streamOf(call(path, { method: 'POST', body, lastEventId, signal }));
          eras.learn(true, asked);
          return response;
        },
        onError: (error) => isSignedOut(error) && eras.learn(false, asked),
      });
    },
    signInUrl: (returnTo: string) => `${baseOf(options)}/auth/login?returnTo=${encodeURIComponent(returnTo)}`,
  });
}

/** 128 random bits; `crypto.randomUUID` is there on https pages only. */
function randomId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
