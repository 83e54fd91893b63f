/** Longer ones would not fit into the cookie that keeps them, as JSON. */
const MAX_LENGTH = 512;
/** Visible ASCII without the backslash, which browsers read as a slash (WHATWG URL §4.4). */
const PLAIN = /^\/[\x21-\x5b\x5d-\x7e]*$/;
/** A control character, encoded however often: decoded on the way, it could begin a header of its own. */
const ENCODED_CONTROL = /%(?:25)*(?:[01][\da-f]|7f)/i;
/** What may end up as a slash or as nothing at all: backslashes, invisible characters, slashes of other widths. */
const DECEPTIVE = /[\\\p{Cc}\p{Cf}\p{Zl}\p{Zp}\ufe68\uff0f\uff3c]/u;
const DOT_SEGMENT = /(^|\/)\.{1,2}(\/|$)/;

/**
 * Where a sign-in leads back to: `text` if it is a path of this origin, as the browser and every server between
 * would read it, and `/` if it is anything else. What lies below `authPath` would lead in a circle.
 */
export function localPath(text: string | null, authPath: string): string {
  if (text === null || JSON.stringify(text).length > MAX_LENGTH + '""'.length) return '/';
  if (!PLAIN.test(text) || ENCODED_CONTROL.test(text)) return '/';
  let path = text.split(/[?#]/, 1)[0] as string;
  // Some decode a path once, some twice: it must be local at every depth.
  for (;;) {
    if (DECEPTIVE.test(path) || !isLocal(path, authPath)) return '/';
    const decoded = decode(path);
    if (decoded === path) return text;
    if (decoded === undefined) return '/';
    path = decoded;
  }
}

/** By what its characters stand for: some servers take dots and letters of other widths for plain ones. */
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
