import { errorOf, RelayError } from './relay-error.ts';

export interface CallsOptions {
  /** The relay, with its base path. */
  readonly baseUrl: string;
  /** In place of the global `fetch`. */
  readonly fetch?: typeof fetch;
}

export interface Call {
  readonly method?: 'POST';
  /** JSON. */
  readonly body?: string;
  readonly lastEventId?: string;
  readonly signal?: AbortSignal;
}

/** Calls paths below `baseUrl`, with the session's cookie. What it returns throws RelayError `unreachable`. */
export function caller(options: CallsOptions): (path: string, call?: Call) => Promise<Response> {
  const base = baseOf(options);
  // Browsers keep cookies by themselves and show none; elsewhere nobody else does it.
  const cookies = new Map<string, string>();
  return async (path, { lastEventId, ...init } = {}) => {
    const headers = new Headers();
    if (init.body) headers.set('Content-Type', 'application/json');
    if (lastEventId) headers.set('Last-Event-ID', inBytes(lastEventId));
    if (cookies.size) headers.set('Cookie', [...cookies.values()].join('; '));
    const response = await (options.fetch ?? fetch)(base + path, {
      ...init,
      headers,
      credentials: 'include',
    }).catch((cause) => {
      throw new RelayError('The server is out of reach.', { code: 'unreachable', status: 0, cause });
    });
    for (const line of response.headers.getSetCookie?.() ?? []) {
      const [pair = '', name = '', value] = /^(.*?)=([^;]*)/.exec(line) ?? [];
      if (value) cookies.set(name, pair);
      else cookies.delete(name);
    }
    return response;
  };
}

/** Without a slash at its end. */
export function baseOf({ baseUrl }: CallsOptions): string {
  return baseUrl.replace(/\/+$/, '');
}

/** What a call answered: JSON, or undefined if it is 204. @throws RelayError */
export async function answerOf<T>(called: Promise<Response>): Promise<T> {
  const response = await called;
  const body = await jsonOf(response);
  if (!response.ok || (body === undefined && response.status !== 204)) throw errorOf(response, body);
  return body as T;
}

/** What a call answered: a stream. @throws RelayError */
export async function streamOf(called: Promise<Response>): Promise<Response> {
  const response = await called;
  const type = response.headers.get('Content-Type');
  if (response.ok && /^text\/event-stream\s*(;|$)/i.test(`${type}`)) return response;
  throw errorOf(response, await jsonOf(response));
}

/** The body, if it is JSON. */
function jsonOf(response: Response): Promise<unknown> {
  return response.json().catch(() => undefined);
}

/** In UTF-8, each byte as one character, as `fetch` takes headers (Fetch §5.1, `ByteString`). */
function inBytes(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
