/** Bounds the bytes that all streams of this process hold together. */
export interface HeldBytes {
  readonly maxBytes: number;
  /** Counts `bytes` more; false, and nothing is counted, if there is no room for them. */
  take(bytes: number): boolean;
  release(bytes: number): void;
  /** How many bytes are held now. */
  bytes(): number;
}

/** One bound for the whole process, of `maxBytes`. */
export function heldBytes(maxBytes: number): HeldBytes {
  let held = 0;
  return {
    maxBytes,
    take(bytes) {
      if (held + bytes > maxBytes) return false;
      held += bytes;
      return true;
    },
    release(bytes) {
      held -= bytes;
    },
    bytes: () => held,
  };
}

/** A part of `all`, of at most `maxBytes`: what it holds counts in both. */
export function partOf(all: HeldBytes, maxBytes: number): HeldBytes {
  const own = heldBytes(maxBytes);
  return {
    maxBytes,
    take(bytes) {
      if (!own.take(bytes)) return false;
      if (all.take(bytes)) return true;
      own.release(bytes);
      return false;
    },
    release(bytes) {
      own.release(bytes);
      all.release(bytes);
    },
    bytes: own.bytes,
  };
}

/** Bytes that wait, copied into a buffer of their own: a part of a larger buffer would keep all of it in memory. */
export interface HeldBuffer {
  /** Counts the buffer's whole capacity. */
  readonly bound: HeldBytes;
  buffer: Buffer | undefined;
  /** How many bytes of the buffer wait. */
  length: number;
}

const LEAST_CAPACITY = 512;

/**
 * Makes room for `more` bytes after those that wait; returns the buffer to write them into, at `held.length`, or
 * undefined if there is no room. The buffer doubles, up to `most` bytes: many small pieces are not copied each time.
 */
export function roomFor(held: HeldBuffer, more: number, most = Number.POSITIVE_INFINITY): Buffer | undefined {
  const length = held.length + more;
  const capacity = held.buffer?.length ?? 0;
  if (length <= capacity) return held.buffer;
  return grow(held, Math.max(LEAST_CAPACITY, Math.min(2 * capacity, most), length)) ? held.buffer : undefined;
}

/** Adds `more` to what waits; false, and nothing is added, if there is no room for it. `most` as for `roomFor`. */
export function hold(held: HeldBuffer, more: Buffer, most?: number): boolean {
  const buffer = roomFor(held, more.length, most);
  buffer?.set(more, held.length);
  if (buffer) held.length += more.length;
  return buffer !== undefined;
}

function grow(held: HeldBuffer, capacity: number): boolean {
  const { bound, buffer, length } = held;
  if (!bound.take(capacity - (buffer?.length ?? 0))) return false;
  // A smaller buffer would come from a shared pool, and keep all of the pool in memory.
  held.buffer = Buffer.allocUnsafeSlow(capacity);
  buffer?.copy(held.buffer, 0, 0, length);
  return true;
}

/** Returns what waits, and holds nothing any more. */
export function takeHeld(held: HeldBuffer): Buffer {
  const { buffer, length } = held;
  dropHeld(held);
  return buffer ? buffer.subarray(0, length) : Buffer.alloc(0);
}

/** Forgets what waits. */
export function dropHeld(held: HeldBuffer): void {
  if (held.buffer) held.bound.release(held.buffer.length);
  held.buffer = undefined;
  held.length = 0;
}
