import { errorOf, RelayError, type Retryable, UNREACHABLE } from './relay-error.ts';

/** How the relay is reached. */
export interface CallsOptions {
  /** The origin of the relay with its base path. On the page's own origin the base path alone, or empty. */
  readonly baseUrl: string;
  /** In place of the global `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /** `keep`: the client keeps the cookies of the relay in memory, as a browser does. */
  readonly cookies?: 'keep' | undefined;
}

/** What a call sends. */
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
  const cookies = new Map<string, string>();
  let isReached = false;
  return async (path, { lastEventId, signal = null, by = options.fetch, ...init } = {}) => {
    const headers = new Headers();
    // `fetch` itself names the type of a form, with its boundary.
    if (typeof init.body === 'string') headers.set('Content-Type', 'application/json');
    if (lastEventId) headers.set('Last-Event-ID', asByteString(lastEventId));
    if (cookies.size) headers.set('Cookie', [...cookies.values()].join('; '));
    signal?.throwIfAborted();
    // Not before a call, since a server may render the page without one.
    if (!by && typeof location === 'undefined' && !/^h/i.test(base))
      throw new TypeError(
        'baseUrl must be the URL of the relay in Node.js, such as https://chat.example.com.',
      );
    const response = await (by ?? fetch)(base + path, {
      ...init,
      signal,
      headers,
      credentials: 'include',
    }).catch((cause) => {
      signal?.throwIfAborted();
      // A browser does not say whether the origin was refused or the connection failed.
      const hint =
        isReached || !isOtherOrigin(base)
          ? undefined
          : `The relay may be away, or its ALLOWED_ORIGINS lacks ${location.origin}.`;
      throw new RelayError(UNREACHABLE, { code: 'unreachable', status: 0, hint, cause });
    });
    isReached = true;
    // Only if asked for: a server may render the pages of many users with one client.
    for (const line of (options.cookies && response.headers.getSetCookie?.()) || []) {
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

/** Whether the page has another origin than the relay at `base`; false in Node.js. */
export function isOtherOrigin(base: string): boolean {
  return typeof location === 'object' && new URL(base || '/', location.href).origin !== location.origin;
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

/** The response, if it is an event stream; `unsent` as in `errorOf`. @throws RelayError */
export async function streamOf(called: Promise<Response>, unsent?: Retryable): Promise<Response> {
  const response = await called;
  const type = response.headers.get('Content-Type');
  if (response.ok && /^text\/event-stream\s*(;|$)/i.test(`${type}`)) return response;
  throw errorOf(response, await jsonOf(response), unsent);
}

/** The body, if it is JSON; else undefined. */
function jsonOf(response: Response): Promise<unknown> {
  return response.json().catch(() => undefined);
}

/** Each byte of `text` in UTF-8 as one character, the form in which `fetch` takes headers (Fetch §5.1, `ByteString`). */
function asByteString(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/** 128 random bits. Browsers have `crypto.randomUUID` on https pages only. */
export function randomId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
