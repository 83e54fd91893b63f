import { hash } from 'node:crypto';
import {
  afterLineEnd,
  type BlockFields,
  COLON,
  type LineEnds,
  nextLineEnd,
  takeField,
} from './event-lines.ts';
import type { StreamPiece } from './whole-events.ts';

/**
 * The block that `nextBlock` found: field lines up to a blank line, with the comment lines between them. One record
 * for all blocks of the same bytes costs less than one for each.
 */
export interface Blocks extends BlockFields, LineEnds {
  /** Where the next search starts. */
  at: number;
  /** Where the block begins, its first line of data, and its blank line. */
  from: number;
  dataLine: number;
  blankLine: number;
  /** Behind the blank line. */
  to: number;
}

/** The blocks of a piece of a stream that is no part of an event. */
export function blocksOf({ bytes, bomBytes: from }: StreamPiece): Blocks {
  return {
    bytes,
    lf: -1,
    cr: -1,
    at: from,
    from,
    dataLine: from,
    blankLine: from,
    to: from,
    hasData: false,
    id: undefined,
    retryMs: undefined,
  };
}

/** Goes to the next block; false if there is none. */
export function nextBlock(blocks: Blocks): boolean {
  const { bytes } = blocks;
  blocks.hasData = false;
  blocks.id = undefined;
  blocks.retryMs = undefined;
  for (let at = blocks.at, from = -1; at < bytes.length; ) {
    const end = nextLineEnd(blocks, at);
    if (end < 0) return false;
    const after = afterLineEnd(bytes, end);
    if (end > at) {
      if (bytes[at] !== COLON) {
        if (from < 0) from = at;
        const { hasData } = blocks;
        takeField(blocks, { bytes, from: at, to: end });
        if (!hasData) blocks.dataLine = at;
      }
    } else if (from >= 0) {
      blocks.from = from;
      blocks.blankLine = end;
      blocks.to = after;
      blocks.at = after;
      return true;
    }
    at = after;
  }
  return false;
}

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
