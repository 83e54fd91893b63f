import { hash } from 'node:crypto';

/** SHA-256, cut to 128 bits. */
export const HASH_BYTES = 16;

/** A block that begins at `from`, and its blank line at `blankLine`. */
export interface Block {
  readonly bytes: Buffer;
  readonly from: number;
  readonly blankLine: number;
}

/** The hash of a block without its blank line, whose LF may come later than its CR; in hex. */
export function hashOf({ bytes, from, blankLine }: Block): string {
  return hash('sha256', bytes.subarray(from, blankLine), 'hex').slice(0, 2 * HASH_BYTES);
}
