/** How many times a path may be encoded inside a value that has been decoded. More is refused. */
const MAX_DECODINGS = 3;
const MAX_LENGTH = 1024;
/** A backslash, a control character, or what stands for bytes that are not UTF-8. */
const FORBIDDEN = /[\\\p{Cc}\u{fffd}]/u;

/**
 * Whether `path` names something inside a folder, also for a service that decodes it again: without `..`, backslashes
 * and control characters, plain, in percent-encoding or as letters of another width (Unicode's NFKC, UAX #15).
 */
export function isPlainPath(path: string): boolean {
  if (path === '' || path.length > MAX_LENGTH) return false;
  return staysInside(path, (text) => text) && staysInside(path, (text) => text.normalize('NFKC'));
}

/** Whether `path` does, for a service that reads each decoded form as `formOf` gives it. */
function staysInside(path: string, formOf: (text: string) => string): boolean {
  let decoded = formOf(path);
  for (let decodings = 0; decodings <= MAX_DECODINGS; decodings += 1) {
    if (FORBIDDEN.test(decoded) || decoded.split('/').includes('..')) return false;
    const next = formOf(decodedOnce(decoded));
    if (next === decoded) return true;
    decoded = next;
  }
  return false;
}

/** Decodes every escape byte by byte, so that one which is not UTF-8, such as `%C0%AE`, cannot hide another. */
function decodedOnce(text: string): string {
  return text.replace(/(?:%[0-9a-f]{2})+/gi, (escapes) =>
    Buffer.from(escapes.replaceAll('%', ''), 'hex').toString('utf8'),
  );
}
