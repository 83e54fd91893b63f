import type { Request, RequestHandler, Response } from 'express';
import session, { type Store } from 'express-session';
import { Problem } from '../../errors.ts';
import { requestCookies } from '../../http/request-cookies.ts';
import type { Secret } from '../../secret.ts';

/** Longer than any cookie of ours: an id of 32 characters, its signature of 43, and the encoding of both. */
const MAX_COOKIE_LENGTH = 256;

export interface SessionCookieOptions {
  readonly store: Store;
  /** The first signs, all verify. */
  readonly secrets: readonly Secret[];
  /** Where users are known: a session is one only where it began. */
  readonly realm: string;
  readonly sameSite: 'strict' | 'lax' | 'none';
  /** Whether the browser sees the relay over https: the cookie is then `Secure` and `__Host-`. */
  readonly https: boolean;
}

/** The session cookie's name and the flags that go with it (RFC 6265bis §4.1.3.2 for `__Host-`). */
export function sessionCookie({ https, sameSite }: Pick<SessionCookieOptions, 'https' | 'sameSite'>) {
  return {
    name: https ? '__Host-bot_relay_session' : 'bot_relay_session',
    flags: { httpOnly: true, sameSite, path: '/', secure: https },
  } as const;
}

/**
 * Gives `req.session` to the routes behind it: the session of the request's cookie, or an empty one that is
 * kept only if somebody signs in. A cookie that is not signed by one of `secrets`, too long, or sent twice
 * counts as none, and the store is not asked for it.
 * @throws Problem `session_store_unavailable` if the store fails
 */
export function attachSession(options: SessionCookieOptions): RequestHandler {
  const { name } = sessionCookie(options);
  const attach = expressSession(options);
  return function attachSession(req, res, next) {
    const { cookie } = req.headers;
    req.headers.cookie = onlyCookie(cookie, name);
    // express-session sets a Secure cookie only on what it takes for https. Whether it is, PUBLIC_URL says,
    // and no header of a proxy that may be missing or forged.
    if (options.https) Object.defineProperty(req, 'secure', { value: true });
    attach(req, res, (error?: unknown) => {
      // Others of the browser's cookies are for the stages behind.
      req.headers.cookie = cookie;
      if (error === undefined) return next();
      next(storeUnavailable(error));
    });
  };
}

/**
 * Gives `req.session` like `attachSession`, for routes that only read it: no cookie is set, and nothing is written to
 * the store at the end. express-session gets a request and a response that stand in for the real ones: the method that
 * it puts on a response is made where objects live long, and would keep alive all that belongs to the request until
 * the next full collection of garbage (200 MiB under load).
 * @throws Problem `session_store_unavailable` if the store fails
 */
export function readSession(options: SessionCookieOptions): RequestHandler {
  const { name } = sessionCookie(options);
  const read = expressSession(options);
  return async function readSession(req, _res, next) {
    const { headers, url, originalUrl } = req;
    const cookie = onlyCookie(headers.cookie, name);
    const request = { headers: { cookie }, url, originalUrl } as Request;
    const response = { end() {}, write() {}, writeHead() {} } as unknown as Response;
    const error = await new Promise<unknown>((resolve) => read(request, response, resolve));
    if (error !== undefined) throw storeUnavailable(error);
    req.session = request.session;
    req.sessionID = request.sessionID;
    next();
  };
}

function expressSession(options: SessionCookieOptions): RequestHandler {
  const { name, flags } = sessionCookie(options);
  return session({
    name,
    store: options.store,
    secret: options.secrets.map((secret) => `${secret.open()} ${options.realm}`),
    cookie: flags,
    resave: false,
    saveUninitialized: false,
    unset: 'keep',
  });
}

/** The problem for a failure of the session store, unless the store itself has named it. */
export function storeUnavailable(cause: unknown): Problem {
  if (cause instanceof Problem) return cause;
  return new Problem('session_store_unavailable', 'Sessions are not available right now; try again.', {
    retryAfter: 1,
    cause,
  });
}

/**
 * The header with the one cookie called `name` alone: express-session's own parser takes off what surrounds a name,
 * and would take the first of two.
 */
function onlyCookie(header: string | undefined, name: string): string | undefined {
  const [ours, another] = requestCookies(header).filter((cookie) => cookie.name === name);
  const text = ours && `${name}=${ours.value}`;
  return another === undefined && text && text.length <= MAX_COOKIE_LENGTH ? text : undefined;
}
