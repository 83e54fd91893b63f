import type { IncomingHttpHeaders } from 'node:http';
import type { Bot } from '../../bots/bot.ts';
import type { Secret } from '../../secret.ts';
import type { UpstreamRequest } from './send.ts';

export interface UpstreamRequestOptions {
  readonly baseUrl: Readonly<URL>;
  /** Query parameters that go upstream; all others are dropped. */
  readonly forwardQuery: readonly string[];
  /** The header that carries the session's user id, if any. */
  readonly userHeader: string | undefined;
}

/** Headers of the client that go upstream as they are, where it sent them. */
const FORWARDED = ['accept', 'last-event-id', 'traceparent'] as const;

/** What of a message goes upstream. */
export interface OutgoingMessage {
  readonly bot: Bot;
  /** The target of the client's request, with its query. */
  readonly url: string;
  /** As the client sent them; only `FORWARDED` go upstream. */
  readonly headers: IncomingHttpHeaders;
  readonly requestId: string;
  readonly userId: string;
  readonly body: Buffer;
}

/**
 * Makes the function that builds the upstream request of a message that passed the guard. Path and headers
 * are built from what the guard accepted, not copied from what came: so nothing else can leave (RFC 9110
 * §7.6.1 names the hop-by-hop fields; Cookie, Authorization and the like are none of the bot service's business).
 */
export function upstreamRequests({ baseUrl, forwardQuery, userHeader }: UpstreamRequestOptions) {
  const prefix = baseUrl.pathname.replace(/\/+$/, '');
  return function upstreamRequest(message: OutgoingMessage): UpstreamRequest {
    const { bot, body } = message;
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      'content-length': String(body.length),
      accept: 'text/event-stream',
      'accept-encoding': 'identity',
      'x-request-id': message.requestId,
    };
    for (const name of FORWARDED) {
      const value = message.headers[name];
      if (typeof value === 'string') headers[name] = value;
    }
    if (userHeader) headers[userHeader] = message.userId;
    return {
      path: messagePath(prefix, bot) + selectedQuery(message.url, forwardQuery),
      headers,
      body,
    };
  };
}

/** The request with the server's key, in `X-API-KEY`: the only place where a key is opened in order to leave. */
export function withKey<R extends Pick<UpstreamRequest, 'headers'>>(request: R, key: Secret): R {
  return { ...request, headers: { ...request.headers, 'X-API-KEY': key.open() } };
}

/**
 * Makes the function that masks each of `keys` in a text, for what the bot service says and a client gets to
 * see. Of two keys of which one is in the other, the longer one goes first, so that nothing of it stays.
 */
export function maskKeys(keys: readonly Secret[]): (text: string) => string {
  return (text) =>
    keys
      .map((key) => key.open())
      .sort((a, b) => b.length - a.length)
      .reduce((masked, key) => masked.replaceAll(key, '[secret]'), text);
}

/** The path of a message to a bot, behind `prefix`, which has no slash at its end. */
export function messagePath(prefix: string, { namespace, botProviderName }: Bot): string {
  const [ns, bot] = [encodeURIComponent(namespace), encodeURIComponent(botProviderName)];
  return `${prefix}/generic/ns/${ns}/bot-provider/${bot}/message/sse`;
}

function selectedQuery(url: string, names: readonly string[]): string {
  const mark = url.indexOf('?');
  if (mark < 0 || names.length === 0) return '';
  const selected = new URLSearchParams();
  for (const [name, value] of new URLSearchParams(url.slice(mark + 1))) {
    if (names.includes(name)) selected.append(name, value);
  }
  return selected.size > 0 ? `?${selected}` : '';
}
