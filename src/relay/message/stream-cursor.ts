import type { NotResumed } from './break-causes.ts';
import { type Block, type Blocks, blocksOf, HASH_BYTES, hashOf, nextBlock } from './event-blocks.ts';
import { MAX_ID_BYTES } from './event-lines.ts';
import { dropHeld, type HeldBuffer, type HeldBytes, roomFor } from './held-bytes.ts';
import {
  endsRun,
  mayBeOfARun,
  RUN_BEGINS,
  type RunEvent,
  readRunEvent,
  readRunStart,
  START_BYTES,
} from './run-events.ts';
import type { StreamPiece } from './whole-events.ts';

/** From where a broken stream can be resumed. */
export interface ResumePoint {
  /** For the header `Last-Event-ID`: each character is one byte. */
  readonly lastEventId: string;
  /** The stream's last `retry:`, in ms. */
  readonly retryMs: number | undefined;
  /** The hash of the block that had the id, if it was sent whole in this stream. */
  readonly idBlock: string | undefined;
  /** The hashes of all events that were sent after it, one after the other. */
  readonly tail: Buffer;
  /** The `requestId` of the run. */
  readonly runId: string | undefined;
}

export interface CursorOptions {
  /** The client's own `Last-Event-ID`, each character one byte; empty stands for none. */
  readonly lastEventId: string | undefined;
  readonly held: HeldBytes;
  /** False if the stream will not be resumed: then only the beginning and end of its run are noted. */
  readonly keepsTail: boolean;
}

/** More events than this after an id are not remembered. */
const MAX_TAIL = 1024 * HASH_BYTES;
/** How many first events are read, for the run's `requestId`. */
const FIRST_EVENTS = 16;
const NO_TAIL = Buffer.alloc(0);

/** What is known of the part of a stream that was sent to the client. Only the functions below use its fields. */
export interface StreamCursor extends HeldBuffer {
  keepsTail: boolean;
  lastEventId: string;
  /** Why the stream can't be resumed from `lastEventId`; undefined if it can. */
  obstacle: NotResumed | undefined;
  idBlock: string | undefined;
  retryMs: number | undefined;
  run: 'unknown' | 'begun' | 'ended';
  runId: string | undefined;
  /** How many first events were read. */
  firstEvents: number;
  /** Whether one of them had an `eventType`. */
  hasTypes: boolean;
  /** The first bytes of an event that is sent in parts. */
  partStart: string | undefined;
}

/**
 * Notes what is sent of a stream, so that it can be resumed: the last event id (WHATWG HTML §9.2.6), and a hash of
 * each event after it, since a resumed stream may repeat those. They are counted in `held`.
 */
export function streamCursor({ lastEventId = '', held, keepsTail }: CursorOptions): StreamCursor {
  return {
    bound: held,
    buffer: undefined,
    length: 0,
    keepsTail,
    lastEventId,
    obstacle: keepsTail ? obstacleOf(lastEventId) : 'off',
    idBlock: undefined,
    retryMs: undefined,
    run: 'unknown',
    runId: undefined,
    firstEvents: 0,
    hasTypes: false,
    partStart: undefined,
  };
}

/** Where events and their blank lines begin: used only during one call, and made once for all. */
const offsets: number[] = [];

/** Notes what is sent to the client. */
export function noteSent(cursor: StreamCursor, piece: StreamPiece): void {
  if (piece.part !== undefined) {
    notePartSent(cursor, piece);
    return;
  }
  if (!cursor.keepsTail && !mayNameRun(cursor)) return;
  const blocks = blocksOf(piece);
  offsets.length = 0;
  let id: string | undefined;
  let idBlock: Block | undefined;
  while (nextBlock(blocks)) {
    const beginsRun = blocks.hasData && noteEventOfRun(cursor, blocks);
    cursor.retryMs = blocks.retryMs ?? cursor.retryMs;
    if (blocks.id !== undefined) {
      const { bytes, from, blankLine } = blocks;
      id = blocks.id;
      idBlock = { bytes, from, blankLine };
      offsets.length = 0;
    } else if (blocks.hasData && !beginsRun) {
      // A resumed stream may repeat the run's first event or leave it out, so that one is not compared.
      offsets.push(blocks.from, blocks.blankLine);
    }
  }
  if (id !== undefined) noteId(cursor, id, idBlock);
  rememberEvents(cursor, piece.bytes);
}

/** An event that was sent in part can't be repeated or compared: until the next id, the stream can't be resumed. */
function notePartSent(cursor: StreamCursor, { bytes, part, fields }: StreamPiece): void {
  if (part === 'begins') cursor.partStart = '';
  const start = cursor.partStart ?? '';
  if (start.length < START_BYTES) {
    cursor.partStart = start + bytes.toString('latin1', 0, START_BYTES - start.length);
  }
  const isComment = cursor.partStart?.startsWith(':');
  if (!isComment) loseTail(cursor, 'unheld_event');
  if (part !== 'ends') return;
  if (fields?.hasData) noteRun(cursor, readRunStart(cursor.partStart ?? ''));
  cursor.partStart = undefined;
  cursor.retryMs = fields?.retryMs ?? cursor.retryMs;
  if (fields?.id !== undefined) noteId(cursor, fields.id, undefined);
}

/** Whether events say what their run does: not for a service whose first events have no `eventType`. */
function mayNameRun({ firstEvents, hasTypes }: StreamCursor): boolean {
  return hasTypes || firstEvents < FIRST_EVENTS;
}

/** Looks for the run's first and last event, and its `requestId`. Returns whether this is its first event. */
function noteEventOfRun(cursor: StreamCursor, block: Blocks): boolean {
  if (!mayNameRun(cursor)) return false;
  const isEarly = cursor.firstEvents < FIRST_EVENTS;
  if (!isEarly && !mayBeOfARun(block)) return false;
  const event = readRunEvent(block);
  noteRun(cursor, event);
  return event.eventType === RUN_BEGINS;
}

function noteRun(cursor: StreamCursor, event: RunEvent): void {
  if (cursor.firstEvents === 0 && event.eventType === RUN_BEGINS) {
    cursor.run = 'begun';
    // The service has ignored the client's own id: sent again, that would start yet another run.
    if (cursor.idBlock === undefined) loseTail(cursor, 'no_id');
  }
  if (endsRun(event)) cursor.run = 'ended';
  cursor.hasTypes ||= typeof event.eventType === 'string';
  cursor.firstEvents++;
  if (cursor.runId !== undefined || typeof event.requestId !== 'string') return;
  cursor.runId = event.requestId;
  cursor.firstEvents = FIRST_EVENTS;
}

function noteId(cursor: StreamCursor, id: string, block: Block | undefined): void {
  dropHeld(cursor);
  cursor.lastEventId = id;
  cursor.obstacle = cursor.keepsTail ? obstacleOf(id) : 'off';
  cursor.idBlock = block && !cursor.obstacle ? hashOf(block) : undefined;
}

function rememberEvents(cursor: StreamCursor, bytes: Buffer): void {
  for (let n = 0; !cursor.obstacle && n < offsets.length; n += 2) {
    const hash = hashOf({ bytes, from: offsets[n] as number, blankLine: offsets[n + 1] as number });
    const isFull = cursor.length >= MAX_TAIL;
    const buffer = isFull ? undefined : roomFor(cursor, HASH_BYTES, MAX_TAIL);
    if (buffer) cursor.length += buffer.write(hash, cursor.length, 'hex');
    else loseTail(cursor, isFull ? 'too_many_events' : 'no_room');
  }
}

function loseTail(cursor: StreamCursor, why: NotResumed): void {
  // The first loss counts: what comes later, up to the next id, changes nothing.
  cursor.obstacle ??= why;
  dropHeld(cursor);
}

/** Why an id can't be sent: there is none (an empty one would start a new run), or no header can carry it unchanged. */
function obstacleOf(id: string): 'no_id' | 'bad_id' | undefined {
  if (id === '') return 'no_id';
  return isCarriable(id) ? undefined : 'bad_id';
}

function isCarriable(id: string): boolean {
  if (id.length > MAX_ID_BYTES || /^[ \t]|[ \t]$/.test(id)) return false;
  for (let at = 0; at < id.length; at++) {
    const code = id.charCodeAt(at);
    if ((code < 0x20 && code !== 0x09) || code === 0x7f) return false;
  }
  return true;
}

/** Why the stream can't be resumed; undefined if it can be. */
export function obstacleTo({ obstacle }: StreamCursor): NotResumed | undefined {
  return obstacle;
}

/** From where the stream can be resumed; undefined if it can't be. */
export function resumePointOf(cursor: StreamCursor): ResumePoint | undefined {
  const { obstacle, lastEventId, retryMs, idBlock, buffer, length, runId } = cursor;
  if (obstacle) return undefined;
  return { lastEventId, retryMs, idBlock, tail: buffer?.subarray(0, length) ?? NO_TAIL, runId };
}

/** `begun` if the stream began with the run's first event, `ended` after its last one. */
export function runState({ run }: StreamCursor): 'unknown' | 'begun' | 'ended' {
  return run;
}

/** The `requestId` of the run, if an event had one. */
export function runIdOf({ runId }: StreamCursor): string | undefined {
  return runId;
}

/** From now on the stream can't be resumed. May be called again; to be called at every end of a stream. */
export function forgetTail(cursor: StreamCursor): void {
  cursor.keepsTail = false;
  loseTail(cursor, 'off');
}
