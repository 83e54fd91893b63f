import { createHmac, timingSafeEqual } from 'node:crypto';
import { stringifySetCookie } from 'cookie';
import { requestCookies } from '../../http/request-cookies.ts';
import type { Secret } from '../../secret.ts';

/** Longer than any cookie of ours: an id of 32 characters, its signature of 43, and the encoding of both. */
const MAX_COOKIE_LENGTH = 256;
/** An id, a dot and the base64 of its signature, without padding. */
const SIGNED = /^s:([^.]{1,64})\.([A-Za-z0-9+/]{43})$/;

export interface SessionCookieOptions {
  /** The first signs, all verify. */
  readonly secrets: readonly Secret[];
  /** Where users are known: a session is one only where it began. */
  readonly realm: string;
  readonly sameSite: 'strict' | 'lax' | 'none';
  /** Whether the browser sees the relay over https: the cookie is then `Secure` and `__Host-`. */
  readonly https: boolean;
}

/** The cookie's name and the flags that go with it (RFC 6265bis §4.1.3.2 for `__Host-`). */
export function cookieFlags({ https, sameSite }: Pick<SessionCookieOptions, 'https' | 'sameSite'>) {
  return {
    name: https ? '__Host-bot_relay_session' : 'bot_relay_session',
    flags: { httpOnly: true, sameSite, path: '/', secure: https },
  } as const;
}

/** The cookie that holds a session's id, signed. */
export interface SessionCookie {
  /** The id in a request's `Cookie` header; undefined if it is not signed by this relay, too long or sent twice. */
  read(header: string | undefined): string | undefined;
  /** The `Set-Cookie` that hands out the session `id`. */
  hold(id: string): string;
  /** The `Set-Cookie` that takes the session away. */
  drop(): string;
}

export function sessionCookie({ secrets, realm, sameSite, https }: SessionCookieOptions): SessionCookie {
  const { name, flags } = cookieFlags({ https, sameSite });
  const keys = secrets.map((secret) => `${secret.open()} ${realm}`) as [string, ...string[]];
  const signature = (id: string, key: string) => createHmac('sha256', key).update(id).digest();

  return {
    read(header) {
      const [ours, another] = requestCookies(header).filter((cookie) => cookie.name === name);
      if (!ours || another || name.length + 1 + ours.value.length > MAX_COOKIE_LENGTH) return undefined;
      const [, id = '', base64 = ''] = SIGNED.exec(decoded(ours.value)) ?? [];
      const given = Buffer.from(base64, 'base64');
      if (given.length === 0) return undefined;
      return keys.some((key) => timingSafeEqual(signature(id, key), given)) ? id : undefined;
    },
    hold(id) {
      const base64 = signature(id, keys[0]).toString('base64').replace(/=+$/, '');
      return stringifySetCookie(
        { name, ...flags, value: `s:${id}.${base64}` },
        { encode: encodeURIComponent },
      );
    },
    drop: () => stringifySetCookie({ name, ...flags, value: '', expires: new Date(0) }),
  };
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return '';
  }
}
