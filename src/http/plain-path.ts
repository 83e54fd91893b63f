/** How many times a path may be encoded inside a value that has been decoded. More is refused. */
const MAX_DECODINGS = 3;
const MAX_LENGTH = 1024;
/** A backslash, a control character, or what stands for bytes that are not UTF-8. */
const FORBIDDEN = /[\\\p{Cc}\u{fffd}]/u;
/** A path from the root, or an address. */
const ABSOLUTE = /^(?:\/|[a-z][a-z0-9+.-]*:\/)/i;
/** Invisible characters, which some services drop (Unicode's UAX #44). */
const IGNORABLE = /\p{Default_Ignorable_Code_Point}/gu;

/** How a service may read a text: as it is, or normalized (Unicode's NFKC, UAX #15) and without invisible characters. */
const FORMS: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => text.normalize('NFKC').replace(IGNORABLE, ''),
];

/**
 * Whether `path` names something inside a folder, also for a service that decodes it again: without `..`, backslashes
 * and control characters, plain, in percent-encoding, as letters of another width or with invisible ones between.
 */
export function isPlainPath(path: string): boolean {
  return holdsHoweverRead(path, staysInside);
}

/** Whether `path` is plain, and does not begin at the root, as in `/a`, `C:/a` and `file:/a`. */
export function isPlainRelativePath(path: string): boolean {
  return holdsHoweverRead(path, (decoded) => staysInside(decoded) && !ABSOLUTE.test(decoded));
}

function staysInside(path: string): boolean {
  return !FORBIDDEN.test(path) && !path.split('/').includes('..');
}

/** Whether `test` holds for `path` in each way in which a service may read it. */
function holdsHoweverRead(path: string, test: (decoded: string) => boolean): boolean {
  if (path === '' || path.length > MAX_LENGTH) return false;
  return FORMS.every((formOf) => holdsDecoded(path, formOf, test));
}

/** Whether `test` holds for `path`, and for what a service gets that decodes it again. */
function holdsDecoded(
  path: string,
  formOf: (text: string) => string,
  test: (decoded: string) => boolean,
): boolean {
  let decoded = formOf(path);
  for (let decodings = 0; decodings <= MAX_DECODINGS; decodings += 1) {
    if (!test(decoded)) return false;
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
