import { type Blocks, blocksOf, HASH_BYTES, hashOf, nextBlock } from './event-blocks.ts';
import { COLON, CR } from './event-lines.ts';
import { dropHeld, type HeldBuffer, type HeldBytes, hold, takeHeld } from './held-bytes.ts';
import { RUN_BEGINS, type RunEvent, readRunEvent, readRunStart, START_BYTES } from './run-events.ts';
import type { ResumePoint } from './stream-cursor.ts';
import { type StreamPiece, wholePiece } from './whole-events.ts';

/** The first events of a resumed stream. Its fields are for the functions below alone. */
export interface ResumedHead extends HeldBuffer {
  readonly point: ResumePoint;
  /** How many bytes of the tail's hashes were repeated. */
  repeated: number;
  /** Whether the event with the last id came again. */
  idCameAgain: boolean;
  /** Whether an event has shown that the run goes on: one that came again, or that names the run. */
  isProven: boolean;
  /** `late_lf`: all that comes is sent, except for an LF at its beginning, which belongs to a dropped event. */
  state: 'open' | 'late_lf' | 'decided';
  /** Whether the last line was sent. */
  lastWasSent: boolean;
}

/**
 * `pieces`: what is to be sent now. `new_run`: the service has begun another run. `no_room`: nothing more can be held,
 * and what is held was sent before the break.
 */
export type HeadVerdict = { readonly pieces: readonly StreamPiece[] } | 'new_run' | 'no_room';

/**
 * The head of a resumed stream, which may repeat what was sent before the break. Its BOM is dropped, and so is the event
 * with the last id. Events that are equal to those that followed the id, from the first on, are held. Once all of those
 * have come again, the held events are dropped. If another event comes first, the held ones are sent, and then that one.
 * Comments and blocks without data are sent at once; blank lines between blocks are dropped.
 */
export function resumedHead(point: ResumePoint, held: HeldBytes): ResumedHead {
  return {
    bound: held,
    buffer: undefined,
    length: 0,
    point,
    repeated: 0,
    idCameAgain: false,
    isProven: false,
    state: 'open',
    lastWasSent: false,
  };
}

/** Takes the next bytes of the resumed stream. */
export function takeHead(head: ResumedHead, piece: StreamPiece): HeadVerdict {
  const dropsLf = piece.lateLf && head.state !== 'decided' && !head.lastWasSent;
  if (head.state === 'open') return piece.part ? takePart(head, piece) : takeBlocks(head, piece, dropsLf);
  head.state = 'decided';
  return { pieces: dropsLf ? rest(piece, 1) : [piece] };
}

/** A part of what is too large to hold, or finds no room. */
function takePart(head: ResumedHead, piece: StreamPiece): HeadVerdict {
  const { bytes, part } = piece;
  if (part !== 'begins' || bytes[0] === COLON) {
    head.lastWasSent = true;
    return { pieces: [piece] };
  }
  // So few bytes do not show whether another run begins.
  if (bytes.length < START_BYTES) return endWith(head, 'no_room');
  const event = readRunStart(bytes.toString('latin1', 0, START_BYTES));
  if (runOf(head, event) === 'other') return endWith(head, 'new_run');
  return { pieces: [...decide(head), piece] };
}

function takeBlocks(head: ResumedHead, piece: StreamPiece, dropsLf: boolean): HeadVerdict {
  const { bytes } = piece;
  const pieces: StreamPiece[] = piece.lateLf && !dropsLf ? [wholePiece(bytes.subarray(0, 1))] : [];
  const blocks = blocksOf(piece);
  let behind = blocks.at;
  while (nextBlock(blocks)) {
    const { from, to } = blocks;
    pieces.push(...comments(bytes.subarray(behind, from)));
    behind = to;
    head.lastWasSent = !blocks.hasData && blocks.id === undefined;
    if (head.lastWasSent) {
      pieces.push(wholePiece(bytes.subarray(from, to)));
      continue;
    }
    const verdict = judge(head, blocks);
    if (verdict === 'new_run' || verdict === 'no_room') return endWith(head, verdict);
    if (verdict === 'new') return { pieces: [...pieces, ...decide(head), ...rest(piece, from)] };
    if (verdict === 'last_dropped') return { pieces: [...pieces, ...dropAll(head, piece, to)] };
  }
  const after = comments(bytes.subarray(behind));
  if (behind < bytes.length) head.lastWasSent = after.length > 0;
  return { pieces: [...pieces, ...after] };
}

/** `dropped`: it was sent before the break; `last_dropped`: it was the last one; `new`: it was not sent before. */
type BlockVerdict = 'dropped' | 'last_dropped' | 'new' | 'new_run' | 'no_room';

function judge(head: ResumedHead, blocks: Blocks): BlockVerdict {
  const { idBlock, tail } = head.point;
  const { bytes, from, to } = blocks;
  const hash = hashOf(blocks);
  if (hash === idBlock && !head.idCameAgain && head.repeated === 0) {
    head.idCameAgain = true;
    head.isProven = true;
    return tail.length === 0 ? 'last_dropped' : 'dropped';
  }
  const isNext = hash === tail.toString('hex', head.repeated, head.repeated + HASH_BYTES);
  if (isNext) {
    head.repeated += HASH_BYTES;
    head.isProven = true;
    if (head.repeated === tail.length) return 'last_dropped';
    return hold(head, bytes.subarray(from, to)) ? 'dropped' : 'no_room';
  }
  const event = readRunEvent(blocks);
  const run = runOf(head, event);
  if (run === 'other') return 'new_run';
  return run === 'same' && event.eventType === RUN_BEGINS ? 'dropped' : 'new';
}

/** Whether an event names the run that was resumed, or another one; undefined if it names none. */
function runOf(head: ResumedHead, { requestId }: RunEvent): 'same' | 'other' | undefined {
  const { runId } = head.point;
  if (runId === undefined || typeof requestId !== 'string') return undefined;
  if (requestId !== runId) return 'other';
  head.isProven = true;
  return 'same';
}

/** All that comes from now on is sent; returns what was held. */
function decide(head: ResumedHead): readonly StreamPiece[] {
  head.state = 'decided';
  return head.length > 0 ? [wholePiece(takeHeld(head))] : [];
}

/** Drops what is held, and the event that ends at `to`; returns what comes after it. */
function dropAll(head: ResumedHead, piece: StreamPiece, to: number): readonly StreamPiece[] {
  dropHeld(head);
  const mayLackLf = to === piece.bytes.length && piece.bytes[to - 1] === CR;
  head.state = mayLackLf ? 'late_lf' : 'decided';
  return rest(piece, to);
}

function endWith(head: ResumedHead, verdict: 'new_run' | 'no_room'): HeadVerdict {
  dropHead(head);
  return verdict;
}

function rest({ bytes }: StreamPiece, from: number): readonly StreamPiece[] {
  return from < bytes.length ? [wholePiece(bytes.subarray(from))] : [];
}

/** The comment lines in bytes that hold comment and blank lines only. */
function comments(bytes: Buffer): readonly StreamPiece[] {
  if (bytes.length === 0) return [];
  const lines = bytes.toString('latin1').match(/:[^\r\n]*(\r\n|\n|\r)/g);
  return lines ? [wholePiece(Buffer.from(lines.join(''), 'latin1'))] : [];
}

/** Whether all that comes from now on is sent, so that the head is needed no more. */
export function isDecided({ state }: ResumedHead): boolean {
  return state === 'decided';
}

/** Whether only a part of what was sent after the last id has come again so far. */
export function endsInTail({ state, repeated }: ResumedHead): boolean {
  return state === 'open' && repeated > 0;
}

/** Forgets what is held; may be called again. To be called at a break and at every end of a stream. */
export function dropHead(head: ResumedHead): void {
  head.state = 'decided';
  dropHeld(head);
}
