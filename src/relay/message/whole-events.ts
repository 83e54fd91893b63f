import { type EventPart, endOfHeld, eventPart, type LineState, takeLines, takePart } from './event-cut.ts';
import { type BlockFields, CR, LF } from './event-lines.ts';
import { dropHeld, type HeldBuffer, type HeldBytes, hold, takeHeld } from './held-bytes.ts';

const BOM = Buffer.from([0xef, 0xbb, 0xbf]);
const BOM_IS_OVER = 4;
const NOTHING: readonly StreamPiece[] = [];

/** Bytes of a stream that may be sent to the client now. Unless they are a part, they begin and end between two lines. */
export interface StreamPiece {
  /** Contiguous: whole events, complete comment lines and blank lines. `blocksOf` finds the events. */
  readonly bytes: Buffer;
  /** 3 if `bytes` begins with the stream's BOM, else 0. */
  readonly bomBytes: number;
  /** Whether `bytes` begins with an LF that belongs to the CR at the end of the bytes before. */
  readonly lateLf: boolean;
  /** Set if `bytes` are a part of an event or comment line that is too large to hold, or found no room. */
  readonly part: undefined | 'begins' | 'goes on' | 'ends';
  /** The fields of the event that ends with this part; undefined for a comment line. */
  readonly fields: Readonly<BlockFields> | undefined;
}

/**
 * How many bytes of one event are held until it is whole. Text comes in far smaller events, and 1,000 streams that
 * hold as much have room together.
 */
export const MAX_HELD_EVENT_BYTES = 65_536;

/** How much may be held; the same for all streams. */
export interface HoldingLimits {
  /** How many bytes of one event or comment line are held at most. */
  readonly maxBytes: number;
  readonly held: HeldBytes;
  /** Called once for each event or comment line that is sent before it is whole. */
  readonly onUnheld: (why: 'too_large' | 'no_room') => void;
}

/** What is held of a stream: the beginning of an event or of a line. Its fields are for the functions below alone. */
export interface WholeEvents extends HeldBuffer, LineState {
  readonly limits: HoldingLimits;
  /** How many bytes of a BOM were seen at the start of the stream; more than it has once that is over. */
  bomSeen: number;
  /** Whether the stream's last byte is a CR: an LF that follows belongs to it. */
  endsWithCr: boolean;
  /** Set while an event is sent as it comes. */
  part: EventPart | undefined;
}

/**
 * Divides a stream of server-sent events into what may be sent at once and what is held until its event is whole. The
 * chunks may be split anywhere (WHATWG HTML §9.2.5); all that is passed on, together, is the stream. Nothing is
 * decoded, and nothing copied but what is held.
 */
export function wholeEvents(limits: HoldingLimits): WholeEvents {
  return {
    limits,
    bound: limits.held,
    buffer: undefined,
    length: 0,
    bomSeen: 0,
    endsWithCr: false,
    hasFields: false,
    lineIsEmpty: true,
    lineIsComment: false,
    part: undefined,
  };
}

/** Makes a value of bytes that begin and end between two lines. */
export function wholePiece(bytes: Buffer): StreamPiece {
  return { bytes, bomBytes: 0, lateLf: false, part: undefined, fields: undefined };
}

/** Takes the next bytes of the stream; returns what may be sent now, in order. */
export function push(events: WholeEvents, chunk: Buffer): readonly StreamPiece[] {
  if (chunk.length === 0) return NOTHING;
  if (events.bomSeen < BOM_IS_OVER) return pushStart(events, chunk);
  const start = events.endsWithCr && chunk[0] === LF ? 1 : 0;
  events.endsWithCr = chunk[chunk.length - 1] === CR;
  const { part } = events;
  return part ? pushPart(events, { chunk, start, part }) : pushLines(events, { chunk, start, bomBytes: 0 });
}

/** Takes the first bytes of the stream, which may be a BOM. */
function pushStart(events: WholeEvents, more: Buffer): readonly StreamPiece[] {
  const chunk = events.bomSeen > 0 ? Buffer.concat([BOM.subarray(0, events.bomSeen), more]) : more;
  if (chunk.length < BOM.length && BOM.subarray(0, chunk.length).equals(chunk)) {
    events.bomSeen = chunk.length;
    return NOTHING;
  }
  events.bomSeen = BOM_IS_OVER;
  events.endsWithCr = chunk[chunk.length - 1] === CR;
  const bomBytes = chunk.subarray(0, BOM.length).equals(BOM) ? BOM.length : 0;
  return pushLines(events, { chunk, start: bomBytes, bomBytes });
}

function pushPart(
  events: WholeEvents,
  { chunk, start, part }: { chunk: Buffer; start: number; part: EventPart },
): readonly StreamPiece[] {
  const end = takePart(part, chunk, start);
  if (end < 0) return [{ ...wholePiece(chunk), part: 'goes on' }];
  events.part = undefined;
  const fields = part.hasFields ? part.fields : undefined;
  const ended: StreamPiece = { ...wholePiece(chunk.subarray(0, end)), part: 'ends', fields };
  if (end === chunk.length) return [ended];
  return [ended, ...pushLines(events, { chunk: chunk.subarray(end), start: 0, bomBytes: 0 })];
}

/** A chunk whose lines begin at `start`; before it may be a BOM, or an LF that belongs to a CR before the chunk. */
interface Chunk {
  readonly chunk: Buffer;
  readonly start: number;
  readonly bomBytes: number;
}

function pushLines(events: WholeEvents, { chunk, start, bomBytes }: Chunk): readonly StreamPiece[] {
  const { buffer, hasFields, lineIsEmpty, lineIsComment } = events;
  const cut = takeLines(events, chunk, start);
  let at = 0;
  let pieces = NOTHING;
  if (buffer === undefined) {
    at = cut;
    const bytes = cut === chunk.length ? chunk : chunk.subarray(0, cut);
    const lateLf = start > bomBytes;
    if (cut > 0) pieces = [{ bytes, bomBytes, lateLf, part: undefined, fields: undefined }];
  } else if (cut > start) {
    at = cut;
    const end = endOfHeld({ hasFields, lineIsEmpty, lineIsComment }, chunk, start);
    const whole = wholePiece(withHeld(events, chunk.subarray(0, end)));
    pieces = cut > end ? [whole, wholePiece(chunk.subarray(end, cut))] : [whole];
  }
  const begun = at < chunk.length ? holdRest(events, chunk.subarray(at)) : undefined;
  return begun ? [...pieces, begun] : pieces;
}

/** Returns what was held with `more` after it, and holds nothing any more. */
function withHeld(events: WholeEvents, more: Buffer): Buffer {
  const { buffer, length } = events;
  const bytes = takeHeld(events);
  if (buffer === undefined || length + more.length > buffer.length) return Buffer.concat([bytes, more]);
  buffer.set(more, length);
  return buffer.subarray(0, length + more.length);
}

/** Holds `rest`. If there is no room, returns it with all that is held of its event, to be sent. */
function holdRest(events: WholeEvents, rest: Buffer): StreamPiece | undefined {
  const { maxBytes, onUnheld } = events.limits;
  const isTooLarge = events.length + rest.length > maxBytes;
  if (!isTooLarge && hold(events, rest, maxBytes)) return undefined;
  onUnheld(isTooLarge ? 'too_large' : 'no_room');
  const bytes = events.length > 0 ? withHeld(events, rest) : rest;
  events.part = eventPart();
  takePart(events.part, bytes, 0);
  events.hasFields = false;
  events.lineIsEmpty = true;
  return { ...wholePiece(bytes), part: 'begins' };
}

/** Whether a part was sent whose event or comment line is not over. */
export function isInsideEvent(events: WholeEvents): boolean {
  return events.part !== undefined;
}

/** What is held. Half a BOM counts as the beginning of an event. */
export function holds(events: WholeEvents): 'nothing' | 'comment' | 'event' {
  if (events.bomSeen > 0 && events.bomSeen < BOM_IS_OVER) return 'event';
  if (events.length === 0) return 'nothing';
  return !events.hasFields && events.lineIsComment ? 'comment' : 'event';
}

/** Returns the held bytes, and holds nothing any more. Only for a stream that is over. */
export function takeRest(events: WholeEvents): Buffer {
  const { bomSeen } = events;
  events.bomSeen = BOM_IS_OVER;
  return bomSeen < BOM_IS_OVER ? BOM.subarray(0, bomSeen) : takeHeld(events);
}

/** Forgets the held bytes; may be called again. To be called at every end of a stream. */
export function dropRest(events: WholeEvents): void {
  events.bomSeen = BOM_IS_OVER;
  dropHeld(events);
}
