const BOM = Buffer.from([0xef, 0xbb, 0xbf]);
const NOTHING = Buffer.alloc(0);

/**
 * Takes the BOM from the start of a stream before which a heartbeat went down: where it does not come first, a
 * parser would read it as part of a field's name (WHATWG HTML §9.2.5). Bytes that only begin like one are held
 * back until they are known to be none.
 */
export function dropLateBom() {
  let held: Buffer | undefined = NOTHING;
  return {
    /** What of the stream up to this chunk can go down now. */
    without(chunk: Buffer): Buffer {
      if (held === undefined) return chunk;
      const start = Buffer.concat([held, chunk]);
      const isBom = start.subarray(0, BOM.length).equals(BOM);
      const mayBeBom = start.length < BOM.length && BOM.subarray(0, start.length).equals(start);
      held = mayBeBom ? start : undefined;
      if (mayBeBom) return NOTHING;
      return isBom ? start.subarray(BOM.length) : start;
    },
    /** What is held back when the stream ends. */
    rest: () => held ?? NOTHING,
  };
}
