/** A cookie as it came: the bytes of its name and of its value. */
export interface RequestCookie {
  readonly name: string;
  readonly value: string;
}

/** A token (RFC 9110 §5.6.2), which a cookie's name is (RFC 6265 §4.1.1). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/**
 * The cookies of a `Cookie` header (RFC 6265 §4.2.1) in their order. One whose name is not a token is left out, and
 * nothing but the spaces between two cookies is taken off: a browser lets a sibling host set a name that looks like
 * one of `__Host-` behind other white space (such as the byte 0xA0), and it must not count as that one.
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
