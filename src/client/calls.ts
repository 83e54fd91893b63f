import { errorOf, RelayError } from './relay-error.ts';

export interface CallsOptions {
  /** The relay, with its base path. */
  readonly baseUrl: string;
  /** In place of the global `fetch`. */
  readonly fetch?: typeof fetch;
}

export interface Call {
  readonly method?: 'POST';
  /** JSON text, or a form. */
  readonly body?: string | FormData;
  readonly lastEventId?: string;
  readonly signal?: AbortSignal | undefined;
  /** In place of the client's `fetch`. */
  readonly by?: typeof fetch | undefined;
}

/** Calls a path below `baseUrl`. @throws RelayError `unreachable`, or the signal's reason */
export type Caller = (path: string, call?: Call) => Promise<Response>;

/** Makes the function that calls paths below `baseUrl` with the session's cookie. @throws TypeError for a wrong one */
export function caller(options: CallsOptions): Caller {
  const base = baseOf(options);
  // Needed outside of browsers only: browsers keep cookies themselves and do not show them to scripts.
  const cookies = new Map<string, string>();
  return async (path, { lastEventId, signal = null, by = options.fetch, ...init } = {}) => {
    const headers = new Headers();
    // `fetch` itself names the type of a form, with its boundary.
    if (typeof init.body === 'string') headers.set('Content-Type', 'application/json');
    if (lastEventId) headers.set('Last-Event-ID', asByteString(lastEventId));
    if (cookies.size) headers.set('Cookie', [...cookies.values()].join('; '));
    signal?.throwIfAborted();
    // Not said before, since a server may render the page.
    if (!by && typeof location === 'undefined' && !/^h/i.test(base)) throw wrongBase();
    const response = await (by ?? fetch)(base + path, {
      ...init,
      signal,
      headers,
      credentials: 'include',
    }).catch((cause) => {
      signal?.throwIfAborted();
      throw new RelayError('The server is unreachable.', { code: 'unreachable', status: 0, cause });
    });
    for (const line of response.headers.getSetCookie?.() ?? []) {
      const [pair = '', name = '', value] = /^(.*?)=([^;]*)/.exec(line) ?? [];
      if (value) cookies.set(name, pair);
      else cookies.delete(name);
    }
    return response;
  };
}

/** `baseUrl` without a slash at its end. @throws TypeError if it is none */
export function baseOf({ baseUrl }: CallsOptions): string {
  if (typeof baseUrl !== 'string' || !/^(https?:\/\/[^\s/]\S*|\/\S*)?$/i.test(baseUrl)) throw wrongBase();
  return baseUrl.replace(/\/+$/, '');
}

function wrongBase(): TypeError {
  return new TypeError('baseUrl must be a URL (https://...), or in a page a path or empty.');
}

/** The JSON body of an answer; undefined for 204. @throws RelayError */
export async function answerOf<T>(called: Promise<Response>): Promise<T> {
  const response = await called;
  const body = await jsonOf(response);
  if (!response.ok || (body === undefined && response.status !== 204)) throw errorOf(response, body);
  return body as T;
}

/** The response, if it is an event stream. @throws RelayError */
export async function streamOf(called: Promise<Response>): Promise<Response> {
  const response = await called;
  const type = response.headers.get('Content-Type');
  if (response.ok && /^text\/event-stream\s*(;|$)/i.test(`${type}`)) return response;
  throw errorOf(response, await jsonOf(response));
}

/** The body, if it is JSON; else undefined. */
function jsonOf(response: Response): Promise<unknown> {
  return response.json().catch(() => undefined);
}

/** The bytes of `text` in UTF-8, each as one character: `fetch` takes headers in this form (Fetch §5.1, `ByteString`). */
function asByteString(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
