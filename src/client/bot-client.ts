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

  /** `wasSignedIn`: whether somebody was, as far as this knows. */
  function signOutSeen(wasSignedIn = signedIn !== false): void {
    signedIn = false;
    if (wasSignedIn) client.dispatchEvent(new Event('signed-out'));
  }
  async function signInBy(way: string, body?: object): Promise<Session> {
    const response = await call(`/auth/${way}`, { method: 'POST', ...json(body) });
    signedIn = true;
    return response.json() as Promise<Session>;
  }

  return Object.assign(client, {
    send(message: string | object, { signal, onState }: SendOptions = {}) {
      const body = typeof message === 'string' ? textMessage(channel, message) : message;
      const post = async (stop: AbortSignal, lastEventId: string | undefined) => {
        const resume = lastEventId === undefined ? {} : { 'Last-Event-ID': lastEventId };
        const response = await call(path, { method: 'POST', signal: stop, ...json(body, resume) });
        signedIn = true;
        if (response.headers.get('Content-Type')?.startsWith('text/event-stream')) return response;
        throw await errorOf(response);
      };
      return messageStream({
        post,
        signal,
        silenceMs,
        onState,
        onError: (error) => {
          if (isSignedOut(error)) signOutSeen();
        },
      });
    },
    signIn: (username: string, password: string) => signInBy('login', { username, password }),
    signInAsGuest: () => signInBy('guest'),
    signInUrl: (returnTo: string) => `${baseOf(options)}/auth/login?returnTo=${encodeURIComponent(returnTo)}`,
    async session() {
      try {
        const response = await call('/auth/session');
        signedIn = true;
        return (await response.json()) as Session;
      } catch (error) {
        if (!isSignedOut(error)) throw error;
        signOutSeen(signedIn);
        return undefined;
      }
    },
    async signOut() {
      let logoutUrl: string | null = null;
      try {
        const response = await call('/auth/logout', { method: 'POST' });
        if (response.status === 200)
          ({ logoutUrl } = (await response.json()) as { logoutUrl: string | null });
      } catch (error) {
        if (!isSignedOut(error)) throw error;
      }
      signOutSeen();
      return { logoutUrl };
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
    const { fetch = globalThis.fetch } = options;
    const headers = new Headers(init.headers);
    if (cookies.size > 0) headers.set('Cookie', Array.from(cookies, (pair) => pair.join('=')).join('; '));
    const response = await fetch(base + path, { ...init, headers, credentials: 'include' }).catch((error) => {
      if (init.signal?.aborted) throw error;
      throw new RelayError('The server could not be reached.', { code: 'unreachable', status: 0 });
    });
    for (const line of response.headers.getSetCookie?.() ?? []) {
      const [, name = '', value = ''] = /^([^=]*)=([^;]*)/.exec(line) ?? [];
      if (value) cookies.set(name, value);
      else cookies.delete(name);
    }
    if (!response.ok) throw await errorOf(response);
    return response;
  };
}

function baseOf({ baseUrl }: BotClientOptions): string {
  return baseUrl.replace(/\/$/, '');
}

/** Whether the relay says that there is no session any more. */
function isSignedOut(error: unknown): boolean {
  return error instanceof RelayError && (error.code === 'unauthenticated' || error.code === 'session_ended');
}

function json(body?: object, headers: Record<string, string> = {}): RequestInit {
  if (body === undefined) return {};
  return { headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body) };
}

/** A message in the form that bots take. */
function textMessage(customChannelId: string, text: string) {
  return { customChannelId, customMessageId: randomId(), text, action: 'NONE' };
}

/** Like a UUID; `crypto.randomUUID` is there on https pages only. */
function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('');
}
