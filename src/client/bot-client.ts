import { type MessageState, type MessageStream, messageStream } from './message-stream.ts';
import { errorOf, RelayError } from './relay-error.ts';

export type { MessageState, MessageStream } from './message-stream.ts';
export type { BotEvent } from './read-events.ts';
export { RelayError } from './relay-error.ts';

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

/** Whose session it is and how long it lasts (ISO 8601). */
export interface Session {
  readonly user: { readonly id: string; readonly name: string };
  readonly idleExpiresAt: string;
  readonly absoluteExpiresAt: string;
}

export interface SendOptions {
  /** Stops the message, and with it the bot's run. */
  readonly signal?: AbortSignal;
  readonly onState?: (state: MessageState) => void;
}

/** One bot behind the relay. Dispatches `signed-out` once when the session turns out to be over. */
export interface BotClient extends EventTarget {
  /** A message as the bot takes it, or its text alone. It is sent when its answer is read. */
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
  const channel = randomId();
  const client = new EventTarget();
  /** Undefined until the relay has said so. */
  let signedIn: boolean | undefined;
  /** Goes up with each sign-in and each end of a session: an answer says nothing about the sessions after its own. */
  let era = 0;

  /** Takes in what an answer says that was asked for in the era `asked`. */
  function learn(isSignedIn: boolean, asked: number, wasSignedIn = signedIn !== false): void {
    if (asked !== era) return;
    signedIn = isSignedIn;
    if (isSignedIn) return;
    era++;
    if (wasSignedIn) client.dispatchEvent(new Event('signed-out'));
  }
  async function signInBy(way: string, body?: object): Promise<Session> {
    const session = await answerOf<Session>(call(`/auth/${way}`, post(body && JSON.stringify(body))));
    learn(true, ++era);
    return session;
  }

  return Object.assign(client, {
    send(message: string | object, options: SendOptions = {}) {
      // Now, since the caller may change the object later: a stream is resumed with the body that was sent.
      const body = JSON.stringify(typeof message === 'string' ? textMessage(channel, message) : message);
      let asked = era;
      return messageStream({
        ...options,
        silenceMs,
        async post(signal, lastEventId) {
          asked = era;
          const response = await call(path, { ...post(body, lastEventId), signal });
          if (!response.ok || !isStream(response)) throw errorOf(response, await jsonOf(response));
          learn(true, asked);
          return response;
        },
        onError(error) {
          if (isSignedOut(error)) learn(false, asked);
        },
      });
    },
    signIn: (username: string, password: string) => signInBy('login', { username, password }),
    signInAsGuest: () => signInBy('guest'),
    signInUrl: (returnTo: string) => `${baseOf(options)}/auth/login?returnTo=${encodeURIComponent(returnTo)}`,
    async session() {
      const asked = era;
      try {
        const session = await answerOf<Session>(call('/auth/session'));
        learn(true, asked);
        return session;
      } catch (error) {
        if (!isSignedOut(error)) throw error;
        // A page that asks whether somebody is signed in is told so by the answer.
        learn(false, asked, signedIn === true);
        return undefined;
      }
    },
    async signOut() {
      const asked = era;
      const goodbye = await answerOf<{ logoutUrl: string | null } | undefined>(
        call('/auth/logout', post()),
      ).catch((error) => {
        if (!isSignedOut(error)) throw error;
      });
      learn(false, asked);
      return { logoutUrl: goodbye?.logoutUrl ?? null };
    },
  });
}

type Call = (path: string, init?: RequestInit) => Promise<Response>;

/** Calls of the relay, with the session's cookie. */
function caller(options: BotClientOptions): Call {
  const base = baseOf(options);
  // Browsers keep cookies by themselves and show none; elsewhere nobody else does it.
  const cookies = new Map<string, string>();
  return async (path, init = {}) => {
    const { fetch: ask = fetch } = options;
    const headers = new Headers(init.headers);
    if (cookies.size > 0) headers.set('Cookie', Array.from(cookies, (pair) => pair.join('=')).join('; '));
    const response = await ask(base + path, { ...init, headers, credentials: 'include' }).catch((cause) => {
      throw new RelayError('The server could not be reached.', { code: 'unreachable', status: 0, cause });
    });
    for (const line of response.headers.getSetCookie?.() ?? []) {
      const [, name = '', value = ''] = /^([^=]*)=([^;]*)/.exec(line) ?? [];
      if (value) cookies.set(name, value);
      else cookies.delete(name);
    }
    return response;
  };
}

/** What a call answered: JSON, or undefined if it is 204. @throws RelayError */
async function answerOf<T>(called: Promise<Response>): Promise<T> {
  const response = await called;
  const body = await jsonOf(response);
  if (!response.ok || (body === undefined && response.status !== 204)) throw errorOf(response, body);
  return body as T;
}

/** The body, if it is JSON. */
function jsonOf(response: Response): Promise<unknown> {
  return response.json().catch(() => undefined);
}

function isStream({ headers }: Response): boolean {
  return /^text\/event-stream\s*(;|$)/i.test(headers.get('Content-Type') ?? '');
}

function baseOf({ baseUrl }: BotClientOptions): string {
  return baseUrl.replace(/\/+$/, '');
}

/** Whether the relay says that there is no session any more. */
function isSignedOut(error: unknown): boolean {
  return error instanceof RelayError && (error.code === 'unauthenticated' || error.code === 'session_ended');
}

/** A POST of JSON, or of nothing. */
function post(body?: string, lastEventId?: string): RequestInit {
  return {
    method: 'POST',
    headers: {
      ...(body && { 'Content-Type': 'application/json' }),
      ...(lastEventId && { 'Last-Event-ID': inBytes(lastEventId) }),
    },
    ...(body && { body }),
  };
}

/** In UTF-8, each byte as one character, as `fetch` takes headers (Fetch §5.1, `ByteString`). */
function inBytes(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/** A message in the form that bots take. */
function textMessage(customChannelId: string, text: string) {
  return { customChannelId, customMessageId: randomId(), text, action: 'NONE' };
}

/** 128 random bits; `crypto.randomUUID` is there on https pages only. */
function randomId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
