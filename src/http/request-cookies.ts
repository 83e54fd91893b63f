/** A cookie of a request, with the bytes of its name and value unchanged. */
export interface RequestCookie {
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
