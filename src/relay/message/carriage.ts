import { asProblem, type FailureNotes, Problem } from '../../errors.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import {
  type ChannelNames,
  type ChannelReplacer,
  channelReplacer,
  replaceIds,
  takeUndecided,
} from '../upstream/channel-names.ts';
import type { BreakCause, NotResumed } from './break-causes.ts';
import { blocksOf, nextBlock } from './event-blocks.ts';
import type { Healer } from './healing.ts';
import type { ResponseSinkOptions } from './response-sink.ts';
import { dropHead, type ResumedHead } from './resumed-head.ts';
import { forgetTail, noteSent, runState, type StreamCursor, streamCursor } from './stream-cursor.ts';
import type { StreamSink } from './stream-sink.ts';
import {
  dropRest,
  type HoldingLimits,
  holds,
  type Passed,
  takeRest,
  type WholeEvents,
  wholeEvents,
} from './whole-events.ts';

const CR = 0x0d;

export interface CarriageOptions {
  /** What is carried; or how far the stream has come, which is resumed there. */
  readonly answer: UpstreamAnswer | StreamCursor;
  /** Gets why the stream broke and was not resumed. */
  readonly log: FailureNotes;
  /** Aborted with a Problem, it ends the stream with that. Any other reason means that the client has left. */
  readonly signal: AbortSignal;
  readonly holding: HoldingLimits;
  /** The ids of the conversation, of which the client's goes down; undefined if the message names none. */
  readonly channel: ChannelNames | undefined;
  /** The client's own `Last-Event-ID`. */
  readonly lastEventId: string | undefined;
  /** Makes what resumes the stream if it breaks, or why that can't be; undefined if streams are not resumed. */
  readonly healer: (() => Healer) | NotResumed | undefined;
  /** Whether a run that ends without its end event has broken. */
  readonly endEvents: boolean;
  /** How it ends early: by default with an error event. `cut` is for a stream of many runs that may be asked for again. */
  readonly endings?: 'event' | 'cut' | undefined;
  /** Called if the stream is taken as complete, though it ends inside an event or a run. */
  readonly onIncompleteEnd?: ((how: 'held' | 'no_end_event') => void) | undefined;
  /** Called with an exception of the relay's own, which ends the stream. */
  readonly onFault: (error: unknown) => void;
}

/** What carries a stream to one client. */
export interface CarryOptions extends CarriageOptions, ResponseSinkOptions {}

/** A stream that is being carried, and how far it has come. */
export interface Carriage extends CarriageOptions {
  readonly sink: StreamSink;
  readonly cursor: StreamCursor;
  /** Undefined if there is nothing to replace. */
  readonly replacer: ChannelReplacer | undefined;
  /** The answer that is read now; undefined while there is none. */
  upstream: UpstreamAnswer | undefined;
  events: WholeEvents;
  /** The first events of a resumed stream, until it is clear which of them went down before. */
  head: ResumedHead | undefined;
  /** Whether no event of the resumed stream has gone down yet. */
  awaitsEvent: boolean;
  /** Made at the first break. */
  healing: Healer | undefined;
  /** Aborts the resumption that is under way. */
  resuming: AbortController | undefined;
  /** Whether the last that went down is a part of an event or comment line whose end is missing. */
  insideEvent: boolean;
  /** Whether the last byte was a CR: an LF that belongs to it may follow. */
  endsWithCr: boolean;
  /** No more data of the stream goes to the client. */
  over: boolean;
  isComplete: boolean;
}

/** The state at the start of a stream that goes to `sink`. */
export function newCarriage(
  options: CarriageOptions,
  sink: StreamSink,
  cursor: StreamCursor | undefined,
): Carriage {
  const { answer, log, signal, holding, channel, lastEventId, healer, endEvents } = options;
  const { endings, onIncompleteEnd, onFault } = options;
  const keepsTail = typeof healer === 'function';
  // Written out: a spread takes several times as long for so many members.
  return {
    answer,
    log,
    signal,
    holding,
    channel,
    lastEventId,
    healer,
    endEvents,
    endings,
    onIncompleteEnd,
    onFault,
    sink,
    replacer: channel && channel.client !== channel.upstream ? channelReplacer(channel) : undefined,
    cursor: cursor ?? streamCursor({ lastEventId, held: holding.held, keepsTail }),
    events: wholeEvents(holding),
    upstream: undefined,
    head: undefined,
    awaitsEvent: false,
    healing: undefined,
    resuming: undefined,
    insideEvent: false,
    endsWithCr: false,
    over: false,
    isComplete: false,
  };
}

/** Makes what resumes the stream, unless it is there or nothing may. */
export function healerOf(carriage: Carriage): Healer | undefined {
  if (typeof carriage.healer === 'function') carriage.healing ??= carriage.healer();
  return carriage.healing;
}

/** Whether an event ends in these bytes. */
function hasEvent(passed: Passed): boolean {
  if (passed.part) return passed.fields?.hasData === true;
  const blocks = blocksOf(passed);
  while (nextBlock(blocks)) if (blocks.hasData) return true;
  return false;
}

/** Writes what may go down now, and notes it. */
export function sendDownstream(carriage: Carriage, passed: Passed): void {
  // The end of one of its runs does not mean that such a stream is complete.
  if (carriage.endings !== 'cut') noteSent(carriage.cursor, passed);
  if (carriage.awaitsEvent && hasEvent(passed)) {
    carriage.awaitsEvent = false;
    carriage.healing?.recordOutcome('resumed');
  }
  carriage.insideEvent = passed.part !== undefined && passed.part !== 'ends';
  // A parser would take a BOM that is not at the start for a part of a field name (WHATWG HTML §9.2.5).
  const hasLateBom = passed.bomBytes > 0 && carriage.sink.hasBegun();
  write(carriage, hasLateBom ? passed.bytes.subarray(passed.bomBytes) : passed.bytes);
}

/** Writes bytes of the bot service. Only here they change: all that compares events compares the service's bytes. */
function write(carriage: Carriage, arrived: Buffer): void {
  const { sink, replacer } = carriage;
  const bytes = replacer ? replaceIds(replacer, arrived) : arrived;
  if (bytes.length === 0) return;
  carriage.endsWithCr = bytes[bytes.length - 1] === CR;
  sink.write(bytes, carriage.insideEvent || carriage.endsWithCr);
}

/** Ends the stream as complete. `cause` says why its connection broke after the run's end. */
export function complete(carriage: Carriage, cause?: BreakCause): void {
  const { sink, replacer, log } = carriage;
  if (cause !== undefined) log.cause = cause;
  if (replacer) sink.write(takeUndecided(replacer), carriage.insideEvent || carriage.endsWithCr);
  close(carriage);
  carriage.isComplete = true;
  sink.complete();
}

/** Ends the stream as complete, with all that is held of it. */
export function completeAsItCame(carriage: Carriage): void {
  const { cursor, events, insideEvent, head, onIncompleteEnd } = carriage;
  const inside = insideEvent || holds(events) === 'event';
  if (inside) onIncompleteEnd?.('held');
  else if (runState(cursor) === 'begun') onIncompleteEnd?.('no_end_event');
  // What the head of a resumed stream holds went down before.
  // If an event went down before, this is settled already.
  carriage.healing?.recordOutcome(head ? 'ended_early' : 'resumed');
  if (!head) write(carriage, takeRest(events));
  complete(carriage);
}

/** Ends the stream with a fault of the relay's own. */
export function fail(carriage: Carriage, error: unknown): void {
  if (carriage.over) return;
  carriage.onFault(error);
  endWith(carriage, asProblem(error));
}

/** Ends the stream early, with `problem`. After the end of its run nothing is missing, so that it ends as complete. */
export function endWith(carriage: Carriage, problem: Problem): void {
  const { sink, cursor, insideEvent, endings } = carriage;
  if (carriage.over) return;
  if (runState(cursor) === 'ended' && !insideEvent) {
    complete(carriage, problem.code);
    return;
  }
  close(carriage);
  sink.endEarly(problem, insideEvent || endings === 'cut');
}

/** Ends the stream, since that of the bot service broke off for `cause` and can't be resumed. */
export function endBroken(carriage: Carriage, cause: BreakCause, notResumed: NotResumed): void {
  const detail = 'The answer broke off; it is not complete.';
  const notes = carriage.endings === 'cut' ? {} : { notResumed };
  endWith(carriage, new Problem('upstream_stream_broken', detail, { cause, ...notes }));
}

/** Forgets what is held of an answer that is over. */
export function forgetAnswer(carriage: Carriage): void {
  dropRest(carriage.events);
  if (carriage.head) dropHead(carriage.head);
  carriage.head = undefined;
  carriage.upstream = undefined;
  // No LF can belong to that CR any more.
  carriage.endsWithCr = false;
}

/** Closes the bot service's side of the stream, and forgets all that is held of it. May be called again. */
export function close(carriage: Carriage): void {
  const { upstream, cursor, resuming } = carriage;
  carriage.over = true;
  forgetAnswer(carriage);
  forgetTail(cursor);
  resuming?.abort();
  carriage.healing?.recordOutcome('given_up');
  upstream?.close();
}
