/** The two ids of one conversation. */
export interface ChannelNames {
  /** The id that the client uses. */
  readonly client: string;
  /** The id that the bot service knows; with `CHANNELS=scoped`, ASCII letters and digits only. */
  readonly upstream: string;
}

/** Puts the client's id in the place of the upstream id, in bytes that arrive in pieces. */
export interface ChannelReplacer {
  /** Takes the next bytes, and may write into them; returns those that are decided. */
  push(bytes: Buffer): Buffer;
  /** Returns what was held back, since it could have begun the upstream id. */
  flush(): Buffer;
}

const NOTHING = Buffer.alloc(0);
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LF = 0x0a;
const CR = 0x0d;

/**
 * Makes the replacer of one stream of JSON. It looks for the upstream id with both quotes, the first of which no
 * backslash escapes, so that nothing changes in longer strings; the client's id is written as a JSON string. Nothing is
 * held back at the end of a line.
 */
export function channelReplacer({ client, upstream }: ChannelNames): ChannelReplacer {
  const wanted = Buffer.from(JSON.stringify(upstream));
  const replacement = Buffer.from(JSON.stringify(client));
  const find = finderOf(wanted);
  const { length } = wanted;
  let held = NOTHING;
  /** Whether a backslash before the next byte, held or not yet here, escapes it. */
  let escapes = false;
  return {
    push(bytes) {
      const all = held.length > 0 ? Buffer.concat([held, bytes]) : bytes;
      const first = find(all, 0, escapes);
      let last = first;
      // Most events have one id at most: there is an array only if one has more.
      let found: number[] | undefined;
      for (let at = first; at >= 0; ) {
        at = find(all, at + length, escapes);
        if (at < 0) break;
        found ??= [first];
        found.push(at);
        last = at;
      }
      const to = heldFrom(all, last < 0 ? 0 : last + length, wanted);
      escapes = isEscaped(all, to, escapes);
      held = to < all.length ? Buffer.from(all.subarray(to)) : NOTHING;
      const decided = to < all.length ? all.subarray(0, to) : all;
      if (first < 0) return decided;
      if (replacement.length > length)
        return replacedAnew(decided, { found: found ?? [first], length, replacement });
      return found
        ? allReplacedInPlace(decided, { found, length, replacement })
        : replacedInPlace(decided, first, { length, replacement });
    },
    flush() {
      const rest = held;
      if (rest.length > 0) escapes = false;
      held = NOTHING;
      return rest;
    },
  };
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
 * Finds the next place, at `from` or after it, where some wanted bytes begin, not escaped; -1 if there is none.
 * `before`: whether a backslash escapes the first byte.
 */
type Find = (bytes: Buffer, from: number, before: boolean) => number;

/**
 * Up to this length, a search in JavaScript is faster than to call the one of Node.js; it is also long enough for most
 * events. Its worst case, one step a byte, is bounded by it.
 */
const SHORT_BYTES = 2048;

/**
 * Makes the search for `wanted` (Horspool's algorithm): the byte under the end of `wanted` says how far that can move,
 * mostly by its whole length.
 */
function finderOf(wanted: Buffer): Find {
  const last = wanted.length - 1;
  const steps = new Uint8Array(256).fill(Math.min(wanted.length, 255));
  for (const [at, byte] of wanted.subarray(0, last).entries()) steps[byte] = Math.min(last - at, 255);

  function findShort(bytes: Buffer, from: number): number {
    const { length } = bytes;
    for (let end = from + last; end < length; ) {
      const byte = bytes[end] as number;
      if (byte === wanted[last] && isAt(bytes, end - last, wanted)) return end - last;
      end += steps[byte] as number;
    }
    return -1;
  }

  return (bytes, from, before) => {
    const findAny = (start: number) =>
      bytes.length > SHORT_BYTES ? bytes.indexOf(wanted, start) : findShort(bytes, start);
    let at = findAny(from);
    while (at >= 0 && isEscaped(bytes, at, before)) at = findAny(at + 1);
    return at;
  };
}

/** Whether `wanted` stands in `bytes` at `at`, where it has room. */
function isAt(bytes: Buffer, at: number, wanted: Buffer): boolean {
  for (let n = 0; n < wanted.length; n += 1) if (bytes[at + n] !== wanted[n]) return false;
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

/** Where, after `from`, the last bytes begin that may be the beginning of `wanted`; the length of `bytes` if nowhere. */
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
