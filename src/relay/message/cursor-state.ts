import { type HeldBytes, roomFor } from './held-bytes.ts';
import { obstacleTo, runState, type StreamCursor, streamCursor } from './stream-cursor.ts';

/** How far a stream has come, as a JSON value: with it, another process can resume the stream. */
export interface CursorState {
  readonly lastEventId: string;
  readonly idBlock: string | undefined;
  readonly retryMs: number | undefined;
  readonly runId: string | undefined;
  readonly run: 'unknown' | 'begun';
  readonly firstEvents: number;
  readonly hasTypes: boolean;
  /** The hashes of the events after the last id, in base64. */
  readonly tail: string;
}

/** The state of a stream; undefined if it cannot be resumed, or its run has ended. */
export function cursorState(cursor: StreamCursor): CursorState | undefined {
  const run = runState(cursor);
  if (obstacleTo(cursor) || run === 'ended') return undefined;
  const { lastEventId, idBlock, retryMs, runId, firstEvents, hasTypes, buffer, length } = cursor;
  const tail = buffer?.toString('base64', 0, length) ?? '';
  return { lastEventId, idBlock, retryMs, runId, run, firstEvents, hasTypes, tail };
}

/** The cursor of a stream that has come so far; undefined if there is no room for it in `held`. */
export function cursorOf({ tail, ...state }: CursorState, held: HeldBytes): StreamCursor | undefined {
  const { lastEventId } = state;
  const cursor = Object.assign(streamCursor({ lastEventId, held, keepsTail: true }), state);
  const hashes = Buffer.from(tail, 'base64');
  if (hashes.length === 0) return cursor;
  const buffer = roomFor(cursor, hashes.length);
  if (!buffer) return undefined;
  cursor.length = hashes.copy(buffer);
  return cursor;
}
