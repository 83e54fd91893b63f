import type { Request } from 'express';

/** Longer paths, as JSON, would not fit into the cookie of the sign-in. */
const MAX_LENGTH = 512;
/** Visible ASCII without the backslash, which browsers read as a slash (WHATWG URL §4.4). */
const PLAIN = /^\/[\x21-\x5b\x5d-\x7e]*$/;
/** A control character that is encoded once or more: if a server decodes it, it could begin a new header. */
const ENCODED_CONTROL = /%(?:25)*(?:[01][\da-f]|7f)/i;
/** Characters that some parsers turn into a slash or drop: backslashes, invisible characters, slashes of other widths. */
const DECEPTIVE = /[\\\p{Cc}\p{Cf}\p{Zl}\p{Zp}\ufe68\uff0f\uff3c]/u;
const DOT_SEGMENT = /(^|\/)\.{1,2}(\/|$)/;

/**
 * The path to which a sign-in returns: `text` if it is a path of this origin, for the browser and every server between;
 * else `/`. Paths below `authPath` count as `/`, too, since they would start the next sign-in.
 */
export function localPath(text: string | null, authPath: string): string {
  if (text === null || JSON.stringify(text).length > MAX_LENGTH + '""'.length) return '/';
  if (!PLAIN.test(text) || ENCODED_CONTROL.test(text)) return '/';
  let path = text.split(/[?#]/, 1)[0] as string;
  // Some servers decode a path once, some twice: it must be local each time.
  for (;;) {
    if (DECEPTIVE.test(path) || !isLocal(path, authPath)) return '/';
    const decoded = decode(path);
    if (decoded === path) return text;
    if (decoded === undefined) return '/';
    path = decoded;
  }
}

/** Compares the normalized characters, since some servers treat dots and letters of other widths as plain ones. */
function isLocal(text: string, authPath: string): boolean {
  const path = text.normalize('NFKC');
  return (
    !path.includes('//') &&
    !DOT_SEGMENT.test(path) &&
    !`${path}/`.toLowerCase().startsWith(`${authPath}/`.toLowerCase())
  );
}

function decode(path: string): string | undefined {
  try {
    return decodeURIComponent(path);
  } catch {
    return undefined;
  }
}

/** The query of the request unchanged, with its `?`; empty if there is none. */
export function queryOf({ originalUrl }: Request): string {
  const at = originalUrl.indexOf('?');
  return at < 0 ? '' : originalUrl.slice(at);
}
