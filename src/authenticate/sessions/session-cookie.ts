import { createHmac, timingSafeEqual } from 'node:crypto';
import { stringifySetCookie } from 'cookie';
import { requestCookies } from '../../http/request-cookies.ts';
import type { Secret } from '../../secret.ts';

/** Longer than any cookie of ours: an id of 32 characters, its signature of 43, and the encoding of both. */
const MAX_COOKIE_LENGTH = 256;
/** The base64 of a signature, without padding. */
const SIGNATURE_LENGTH = 43;
/** An id, a dot and its signature. */
const SIGNED = /^s:([^.]+)\.([A-Za-z0-9+/]{43})$/;

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
  const signature = (id: string, key: string) =>
    createHmac('sha256', key).update(id).digest('base64').slice(0, SIGNATURE_LENGTH);

  return {
    read(header) {
      const [ours, another] = requestCookies(header).filter((cookie) => cookie.name === name);
      if (!ours || another || name.length + 1 + ours.value.length > MAX_COOKIE_LENGTH) return undefined;
      const [, id, given = ''] = SIGNED.exec(decoded(ours.value)) ?? [];
      if (id === undefined) return undefined;
      // As texts: several of them are the base64 of the same bytes.
      const isSignedBy = (key: string) =>
        timingSafeEqual(Buffer.from(signature(id, key)), Buffer.from(given));
      return keys.some(isSignedBy) ? id : undefined;
    },
    hold(id) {
      const value = `s:${id}.${signature(id, keys[0])}`;
      return stringifySetCookie({ name, ...flags, value }, { encode: encodeURIComponent });
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
