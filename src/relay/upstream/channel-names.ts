/** The two ids of one conversation. */
export interface ChannelNames {
  /** The id that the client uses. */
  readonly client: string;
  /** The id that the bot service knows; with `CHANNELS=scoped`, of the characters `[0-9a-f]`. */
  readonly upstream: string;
}

/**
 * Puts the client's id in the place of the upstream id, in one stream of JSON. Both are here with their quotes. Only the
 * functions below use its fields: a small record without closures for each stream is cheap to keep and to use.
 */
export interface ChannelReplacer {
  readonly wanted: Buffer;
  readonly replacement: Buffer;
  /** Bytes that are held back, since the upstream id may begin with them. */
  held: Buffer | undefined;
  /** Whether a backslash before the next byte, held or not yet here, escapes it. */
  escapes: boolean;
}

const NOTHING = Buffer.alloc(0);
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LF = 0x0a;
const CR = 0x0d;
const ZERO = 0x30;
const SMALL_F = 0x66;

/** Makes the replacer of one stream. @throws Error if the upstream id has other characters than `[0-9a-f]` */
export function channelReplacer({ client, upstream }: ChannelNames): ChannelReplacer {
  if (!/^[0-9a-f]+$/.test(upstream)) throw new Error('The upstream id is not hexadecimal.');
  const wanted = Buffer.from(JSON.stringify(upstream));
  return { wanted, replacement: Buffer.from(JSON.stringify(client)), held: undefined, escapes: false };
}

/**
 * Takes the next bytes, and may write into them; returns those that are decided. It looks for the upstream id with both
 * quotes, the first of which no backslash escapes, so that nothing changes in longer strings; the client's id is written
 * as a JSON string. Nothing is held back at the end of a line.
 */
export function replaceIds(replacer: ChannelReplacer, bytes: Buffer): Buffer {
  const { wanted, replacement, held, escapes } = replacer;
  const all = held ? Buffer.concat([held, bytes]) : bytes;
  const { length } = wanted;
  let from = 0;
  let first = -1;
  // Most events have one id at most: there is an array only if one has more.
  let found: number[] | undefined;
  for (let at = find(replacer, all, 0); at >= 0; at = find(replacer, all, from)) {
    from = at + length;
    if (first < 0) {
      first = at;
      continue;
    }
    found ??= [first];
    found.push(at);
  }
  const to = heldFrom(all, from, wanted);
  replacer.escapes = isEscaped(all, to, escapes);
  if (held) replacer.held = undefined;
  if (to < all.length) replacer.held = Buffer.from(all.subarray(to));
  const decided = to < all.length ? all.subarray(0, to) : all;
  if (first < 0) return decided;
  if (replacement.length > length)
    return replacedAnew(decided, { found: found ?? [first], length, replacement });
  return found
    ? allReplacedInPlace(decided, { found, length, replacement })
    : replacedInPlace(decided, first, { length, replacement });
}

/** Returns what was held back, and holds nothing any more. */
export function takeUndecided(replacer: ChannelReplacer): Buffer {
  const { held } = replacer;
  if (!held) return NOTHING;
  replacer.held = undefined;
  replacer.escapes = false;
  return held;
}

/**
 * Makes the function that masks a text with `mask`; a text that is the upstream id becomes the client's id. `namesNow`
 * returns the ids of the conversation, if it is known by then.
 */
export function withClientId(
  namesNow: () => ChannelNames | undefined,
  mask: (text: string) => string,
): (text: string) => string {
  return (text) => {
    const names = namesNow();
    return mask(names && text === names.upstream ? names.client : text);
  };
}

/**
 * Up to this length, a search in JavaScript is faster than to call the one of Node.js; it is also long enough for most
 * events. Its worst case, one step a byte, is bounded by it.
 */
const SHORT_BYTES = 2048;

/** Finds the next place, at `from` or after it, where the upstream id begins, not escaped; -1 if there is none. */
function find({ wanted, escapes }: ChannelReplacer, bytes: Buffer, from: number): number {
  const isShort = bytes.length <= SHORT_BYTES;
  for (let start = from; ; ) {
    const at = isShort ? findShort(wanted, bytes, start) : bytes.indexOf(wanted, start);
    if (at < 0 || !isEscaped(bytes, at, escapes)) return at;
    start = at + 1;
  }
}

/**
 * Looks at the last byte of each stretch of `step` bytes. An id that begins in the stretch covers that byte, so that
 * only such bytes stand between it and the opening quote.
 */
function findShort(wanted: Buffer, bytes: Buffer, from: number): number {
  const step = wanted.length - 1;
  for (let start = from; start + step < bytes.length; start += step) {
    let at = start + step - 1;
    while (at > start && mayBeOfId(bytes[at] as number)) at -= 1;
    if (bytes[at] === QUOTE && isAt(bytes, at, wanted)) return at;
  }
  return -1;
}

/** True for `[0-9a-f]`, and for some others, but not for a quote. */
function mayBeOfId(byte: number): boolean {
  return byte >= ZERO && byte <= SMALL_F;
}

/** Whether `wanted` stands in `bytes` at `at`. */
function isAt(bytes: Buffer, at: number, wanted: Buffer): boolean {
  const { length } = wanted;
  if (at + length > bytes.length) return false;
  for (let n = 0; n < length; n += 1) if (bytes[at + n] !== wanted[n]) return false;
  return true;
}

/** What comes in the place of an id. */
interface Replacement {
  /** How long the id is, in bytes. */
  readonly length: number;
  readonly replacement: Buffer;
}

/** What stands where in some bytes, and what comes in its place. */
interface Replacing extends Replacement {
  readonly found: readonly number[];
}

/**
 * Writes `replacement`, which is not longer, into `bytes`, for the one id at `at`; returns the part of them that holds
 * the result. What stands before an id moves to it: it is short, where a large event follows.
 */
function replacedInPlace(bytes: Buffer, at: number, { length, replacement }: Replacement): Buffer {
  const less = length - replacement.length;
  bytes.set(replacement, at + less);
  if (less === 0) return bytes;
  bytes.copyWithin(less, 0, at);
  return bytes.subarray(less);
}

/** As `replacedInPlace`, for several ids: from the last to the first, so that no byte moves twice. */
function allReplacedInPlace(bytes: Buffer, { found, length, replacement }: Replacing): Buffer {
  let begin = bytes.length;
  let end = bytes.length;
  for (const at of found.toReversed()) {
    // What stands between this id and the one after it.
    const rest = end - (at + length);
    begin -= rest;
    if (begin !== at + length) bytes.copyWithin(begin, at + length, end);
    begin -= replacement.length;
    replacement.copy(bytes, begin);
    end = at;
  }
  begin -= end;
  bytes.copyWithin(begin, 0, end);
  return bytes.subarray(begin);
}

function replacedAnew(bytes: Buffer, { found, length, replacement }: Replacing): Buffer {
  const anew = Buffer.allocUnsafe(bytes.length + found.length * (replacement.length - length));
  let from = 0;
  let to = 0;
  for (const at of found) {
    to += bytes.copy(anew, to, from, at);
    to += replacement.copy(anew, to);
    from = at + length;
  }
  bytes.copy(anew, to, from);
  return anew;
}

/** Whether an odd number of backslashes stands before `at`; `before`: whether it does before the first byte. */
function isEscaped(bytes: Buffer, at: number, before: boolean): boolean {
  let first = at;
  while (first > 0 && bytes[first - 1] === BACKSLASH) first -= 1;
  return ((at - first) % 2 === 1) !== (first === 0 && before);
}

/** Where the end of `bytes`, from `from` on, may be the beginning of `wanted`; the length of `bytes` if nowhere. */
function heldFrom(bytes: Buffer, from: number, wanted: Buffer): number {
  const { length } = bytes;
  const last = bytes[length - 1];
  if (last === LF || last === CR) return length;
  for (let at = Math.max(from, length - wanted.length + 1); ; at += 1) {
    at = bytes.indexOf(QUOTE, at);
    if (at < 0) return length;
    if (wanted.compare(bytes, at, length, 0, length - at) === 0) return at;
  }
}
