import type { IncomingHttpHeaders } from 'node:http';
import type { Secret } from '../../secret.ts';
import type { UpstreamRequest } from './send.ts';
import { targetPrefix, type UpstreamTarget, upstreamTarget, userHintHeader } from './upstream-target.ts';

export interface UpstreamRequestOptions {
  readonly baseUrl: Readonly<URL>;
  /** Names of the query parameters that go upstream; all others are dropped. */
  readonly forwardQuery: readonly string[];
  /** The header that carries the session's user id, if any. */
  readonly userHeader: string | undefined;
}

/** Headers of the client that go upstream unchanged, unless they are empty: an empty `Last-Event-ID` resumes nothing. */
const FORWARDED = ['accept', 'last-event-id', 'traceparent'] as const;

const NO_BODY = Buffer.alloc(0);

/**
 * The parts of a message, or of the request for a live stream, that go upstream. Without `query`, the parameters of `url`
 * that `forwardQuery` names are passed on.
 */
export interface OutgoingMessage extends UpstreamTarget {
  /** The target of the client's request, with its query. */
  readonly url: string;
  /** As the client sent them; only `FORWARDED` go upstream. */
  readonly headers: IncomingHttpHeaders;
  readonly requestId: string;
  readonly userId: string;
  /** Undefined for a GET, which has the type of the message's body even so. */
  readonly body: Buffer | undefined;
}

/**
 * Makes the function that builds the upstream request of a message or of a live stream. Path and headers are built from
 * checked parts, so that nothing else can be sent (RFC 9110 §7.6.1 names the hop-by-hop fields; Cookie, Authorization
 * and similar headers must not reach the bot service).
 */
export function upstreamRequestBuilder({ baseUrl, forwardQuery, userHeader }: UpstreamRequestOptions) {
  const prefix = targetPrefix(baseUrl);
  return function upstreamRequest(message: OutgoingMessage): UpstreamRequest {
    const { bot, shape, sandbox, body, query = selectedQuery(message.url, forwardQuery) } = message;
    const headers: Record<string, string> = {
      ...userHintHeader(userHeader, message.userId),
      'content-type': 'application/json',
    };
    if (body) headers['content-length'] = String(body.length);
    headers.accept = 'text/event-stream';
    headers['accept-encoding'] = 'identity';
    headers['x-request-id'] = message.requestId;
    for (const name of FORWARDED) {
      const value = message.headers[name];
      if (typeof value === 'string' && value !== '') headers[name] = value;
    }
    const path = upstreamTarget(prefix, { bot, shape, path: message.path, sandbox, query });
    return body ? { path, headers, body } : { method: 'GET', path, headers, body: NO_BODY };
  };
}

/** Adds the key to the request, in `X-API-KEY`: the only place where a key is opened to be sent. */
export function withKey<R extends Pick<UpstreamRequest, 'headers'>>(request: R, key: Secret): R {
  return { ...request, headers: { ...request.headers, 'X-API-KEY': key.open() } };
}

/**
 * Makes the function that masks each of `keys` in a text of the bot service before a client gets it. Longer keys are
 * masked first: if one key contains another, no part of it stays.
 */
export function maskKeys(keys: readonly Secret[]): (text: string) => string {
  // Opened once: this runs for every string of an answer.
  const opened = keys.map((key) => key.open()).sort((a, b) => b.length - a.length);
  const shortest = opened.at(-1)?.length ?? 0;
  return (text) =>
    text.length < shortest ? text : opened.reduce((masked, key) => masked.replaceAll(key, '[secret]'), text);
}

/** The parameters of `url` that are passed on, as they came; undefined if it has no query, or none may be passed on. */
export function selectedQuery(url: string, names: readonly string[]): URLSearchParams | undefined {
  const mark = url.indexOf('?');
  if (mark < 0 || names.length === 0) return undefined;
  const selected = new URLSearchParams();
  for (const [name, value] of new URLSearchParams(url.slice(mark + 1))) {
    if (names.includes(name)) selected.append(name, value);
  }
  return selected;
}
