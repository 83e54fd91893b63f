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
import type { ResponseSinkOptions, StreamSink } from './response-sink.ts';
import { dropHead, type ResumedHead } from './resumed-head.ts';
import { forgetTail, noteSent, runState, type StreamCursor, streamCursor } from './stream-cursor.ts';
import {
  dropRest,
  type HoldingLimits,
  holds,
  type StreamPiece,
  takeRest,
  type WholeEvents,
  wholeEvents,
} from './whole-events.ts';

const CR = 0x0d;

export interface CarryToOptions {
  /** What is carried. */
  readonly answer: UpstreamAnswer;
  /** Why the stream broke and was not resumed is noted in it. */
  readonly log: FailureNotes;
  /** Aborted with a Problem, it ends the stream with that. Any other reason means that the client has left. */
  readonly signal: AbortSignal;
  readonly holding: HoldingLimits;
  /** The ids of the conversation: the client gets its own. Undefined if the message names none. */
  readonly channel: ChannelNames | undefined;
  /** The client's own `Last-Event-ID`. */
  readonly lastEventId: string | undefined;
  /** Makes what resumes the stream if it breaks, or why that can't be; undefined if streams are not resumed. */
  readonly healer: (() => Healer) | NotResumed | undefined;
  /** Whether a run that ends without its end event has broken. */
  readonly endEvents: boolean;
  /** Whether it is a live stream: it has many runs, and an early end cuts it, since it may be asked for again. */
  readonly isLive?: boolean | undefined;
  /** Called if the stream is taken as complete, though it ends inside an event or a run. */
  readonly onIncompleteEnd?: ((how: 'held' | 'no_end_event') => void) | undefined;
  /** Called with an exception of the relay's own, which ends the stream. */
  readonly onFault: (error: unknown) => void;
}

/** What carries a stream to one client. */
export interface CarryOptions extends CarryToOptions, ResponseSinkOptions {}

/** A stream that is being carried, and how far it has come. */
export interface StreamState extends CarryToOptions {
  readonly sink: StreamSink;
  readonly cursor: StreamCursor;
  /** Undefined if there is nothing to replace. */
  readonly replacer: ChannelReplacer | undefined;
  /** The answer that is read now; undefined while there is none. */
  upstream: UpstreamAnswer | undefined;
  events: WholeEvents;
  /** The first events of a resumed stream, until it is clear which of them were sent before. */
  head: ResumedHead | undefined;
  /** Whether no event of the resumed stream was sent yet. */
  awaitsEvent: boolean;
  /** Made at the first break. */
  healing: Healer | undefined;
  /** Aborts the resumption that is under way. */
  resuming: AbortController | undefined;
  /** Whether what was sent last is a part of an event or comment line whose end is missing. */
  insideEvent: boolean;
  /** Whether the last byte was a CR: an LF that belongs to it may follow. */
  endsWithCr: boolean;
  /** Whether no more data of the stream goes to the client. */
  over: boolean;
  isComplete: boolean;
}

/** The state at the start of a stream that goes to `sink`. */
export function newStreamState(options: CarryToOptions, sink: StreamSink): StreamState {
  const { answer, log, signal, holding, channel, lastEventId, healer, endEvents } = options;
  const { isLive, onIncompleteEnd, onFault } = options;
  const keepsTail = typeof healer === 'function';
  // Written out: with this many members, a spread takes several times as long.
  return {
    answer,
    log,
    signal,
    holding,
    channel,
    lastEventId,
    healer,
    endEvents,
    isLive,
    onIncompleteEnd,
    onFault,
    sink,
    replacer: channel && channel.client !== channel.upstream ? channelReplacer(channel) : undefined,
    cursor: streamCursor({ lastEventId, held: holding.held, keepsTail }),
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
export function healerOf(state: StreamState): Healer | undefined {
  if (typeof state.healer === 'function') state.healing ??= state.healer();
  return state.healing;
}

/** Whether an event ends in these bytes. */
function hasEvent(piece: StreamPiece): boolean {
  if (piece.part) return piece.fields?.hasData === true;
  const blocks = blocksOf(piece);
  while (nextBlock(blocks)) if (blocks.hasData) return true;
  return false;
}

/** Sends a piece to the client, and notes it. */
export function sendToClient(state: StreamState, piece: StreamPiece): void {
  // The end of one of its runs does not complete a live stream.
  if (!state.isLive) noteSent(state.cursor, piece);
  if (state.awaitsEvent && hasEvent(piece)) {
    state.awaitsEvent = false;
    state.healing?.recordOutcome('resumed');
  }
  state.insideEvent = piece.part !== undefined && piece.part !== 'ends';
  // A parser would take a BOM that is not at the start for a part of a field name (WHATWG HTML §9.2.5).
  const hasLateBom = piece.bomBytes > 0 && state.sink.hasBegun();
  write(state, hasLateBom ? piece.bytes.subarray(piece.bomBytes) : piece.bytes);
}

/** Writes bytes of the bot service, with the client's ids. All that compares events compares the service's bytes. */
function write(state: StreamState, arrived: Buffer): void {
  const { sink, replacer } = state;
  const bytes = replacer ? replaceIds(replacer, arrived) : arrived;
  if (bytes.length === 0) return;
  state.endsWithCr = bytes[bytes.length - 1] === CR;
  sink.write(bytes, state.insideEvent || state.endsWithCr);
}

/** Ends the stream as complete. `cause` says why its connection broke after the run's end. */
export function complete(state: StreamState, cause?: BreakCause): void {
  const { sink, replacer, log } = state;
  if (cause !== undefined) log.cause = cause;
  if (replacer) sink.write(takeUndecided(replacer), state.insideEvent || state.endsWithCr);
  close(state);
  state.isComplete = true;
  sink.complete();
}

/** Ends the stream as complete, with all that is held of it. */
export function completeAsItCame(state: StreamState): void {
  const { cursor, events, insideEvent, head, onIncompleteEnd } = state;
  const inside = insideEvent || holds(events) === 'event';
  if (inside) onIncompleteEnd?.('held');
  else if (runState(cursor) === 'begun') onIncompleteEnd?.('no_end_event');
  // What the head of a resumed stream holds was sent before the break. If an event was sent since, the outcome is recorded.
  state.healing?.recordOutcome(head ? 'ended_early' : 'resumed');
  if (!head) write(state, takeRest(events));
  complete(state);
}

/** Ends the stream with a fault of the relay's own. */
export function fail(state: StreamState, error: unknown): void {
  if (state.over) return;
  state.onFault(error);
  endWith(state, asProblem(error));
}

/** Ends the stream early, with `problem`. After the end of its run nothing is missing, so that it ends as complete. */
export function endWith(state: StreamState, problem: Problem): void {
  const { sink, cursor, insideEvent, isLive = false } = state;
  if (state.over) return;
  if (runState(cursor) === 'ended' && !insideEvent) {
    complete(state, problem.code);
    return;
  }
  close(state);
  sink.endEarly(problem, insideEvent || isLive);
}

/** Ends the stream, since that of the bot service broke off for `cause` and can't be resumed. */
export function endBroken(state: StreamState, cause: BreakCause, notResumed: NotResumed): void {
  const detail = 'The answer broke off; it is not complete.';
  const notes = state.isLive ? {} : { notResumed };
  endWith(state, new Problem('upstream_stream_broken', detail, { cause, ...notes }));
}

/** Forgets what is held of an answer that is over. */
export function forgetAnswer(state: StreamState): void {
  dropRest(state.events);
  if (state.head) dropHead(state.head);
  state.head = undefined;
  state.upstream = undefined;
  // No LF can belong to that CR any more.
  state.endsWithCr = false;
}

/** Closes the bot service's side of the stream, and forgets all that is held of it. May be called again. */
export function close(state: StreamState): void {
  const { upstream, cursor, resuming } = state;
  state.over = true;
  forgetAnswer(state);
  forgetTail(cursor);
  resuming?.abort();
  state.healing?.recordOutcome('given_up');
  upstream?.close();
}
