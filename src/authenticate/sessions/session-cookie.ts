import { createHmac, timingSafeEqual } from 'node:crypto';
import { stringifySetCookie } from 'cookie';
import type { Secret } from '../../secret.ts';

/** An id, a dot and its signature, both in base64url. */
const SIGNED = /^([\w-]{32})\.([\w-]{43})$/;

interface SessionCookieOptions {
  /** The first one signs, all verify. */
  readonly secrets: readonly Secret[];
  /** A session is valid only in the realm where it began. */
  readonly realm: string;
  readonly sameSite: 'strict' | 'lax' | 'none';
  /** Whether the browser sees the relay over https: the cookie is then `Secure` and `__Host-`. */
  readonly https: boolean;
  /** Cookies are those of a host, whatever the port: two programs there must not share a name. */
  readonly name?: string;
}

/** The cookie's name and attributes (RFC 6265bis §4.1.3.2 for `__Host-`). */
export function cookieFlags({
  https,
  sameSite,
  name = 'bot_relay_session',
}: Pick<SessionCookieOptions, 'https' | 'sameSite' | 'name'>) {
  return {
    name: https ? `__Host-${name}` : name,
    flags: { httpOnly: true, sameSite, path: '/', secure: https },
  } as const;
}

/** The cookie with the signed id of a session. */
export interface SessionCookie {
  /** The id in a `Cookie` header; undefined if the cookie is not signed by this relay or comes twice. */
  read(header: string | undefined): string | undefined;
  /** The `Set-Cookie` header that sets the session's id. */
  set(id: string): string;
  /** The `Set-Cookie` header that removes the cookie. */
  clear(): string;
}

/** Makes the cookie of one realm. */
export function sessionCookie({ secrets, realm, ...options }: SessionCookieOptions): SessionCookie {
  const { name, flags } = cookieFlags(options);
  const keys = secrets.map((secret) => `${secret.open()} ${realm}`) as [string, ...string[]];
  const signature = (id: string, key: string) => createHmac('sha256', key).update(id).digest('base64url');

  return {
    read(header) {
      const [cookie, another] = requestCookies(header).filter((cookie) => cookie.name === name);
      if (!cookie || another) return undefined;
      const [, id, given = ''] = SIGNED.exec(cookie.value) ?? [];
      if (id === undefined) return undefined;
      // The texts are compared, since several texts are the base64url of the same bytes.
      const isSignedBy = (key: string) =>
        timingSafeEqual(Buffer.from(signature(id, key)), Buffer.from(given));
      return keys.some(isSignedBy) ? id : undefined;
    },
    set: (id) => stringifySetCookie({ name, ...flags, value: `${id}.${signature(id, keys[0])}` }),
    clear: () => stringifySetCookie({ name, ...flags, value: '', expires: new Date(0) }),
  };
}

/** A cookie of a request, with the bytes of its name and value unchanged. */
interface RequestCookie {
  readonly name: string;
  readonly value: string;
}

/** A token (RFC 9110 §5.6.2); the name of a cookie must be one (RFC 6265 §4.1.1). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/**
 * The cookies of a `Cookie` header (RFC 6265 §4.2.1) in their order. A cookie whose name is not a token is left out. Only
 * spaces are trimmed, no other white space: a sibling host can set a cookie whose name is `__Host-…` behind a byte such
 * as 0xA0, and it must not count as the `__Host-` cookie.
 */
export function requestCookies(header = ''): RequestCookie[] {
  return header
    .split(';')
    .map((text) => {
      const pair = text.replace(/^ +/, '');
      const equals = Math.max(0, pair.indexOf('='));
      return { name: pair.slice(0, equals), value: pair.slice(equals + 1) };
    })
    .filter(({ name }) => TOKEN.test(name));
}
