import { Problem } from '../../errors.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { BreakCause, NotResumed } from './break-causes.ts';
import { responseSink, type StreamSink } from './response-sink.ts';
import { dropHead, endsInTail, isDecided, type ResumedHead, resumedHead, takeHead } from './resumed-head.ts';
import { obstacleTo, type ResumePoint, resumePointOf, runIdOf, runState } from './stream-cursor.ts';
import {
  type CarryOptions,
  type CarryToOptions,
  close,
  complete,
  completeAsItCame,
  endBroken,
  endWith,
  fail,
  forgetAnswer,
  healerOf,
  newStreamState,
  type StreamState,
  sendToClient,
} from './stream-state.ts';
import {
  holds,
  isInsideEvent,
  push,
  type StreamPiece,
  type WholeEvents,
  wholeEvents,
} from './whole-events.ts';

/** How a stream has ended. */
interface CarriedEnd {
  /** Whether all of the answer was there. */
  readonly isComplete: boolean;
  /** The `requestId` of the run that was not over when the client left; undefined if there is none. */
  readonly openRun: string | undefined;
}

/**
 * Carries the bot service's stream to the client, byte for byte and each event as soon as it is whole. If the
 * stream breaks, it is resumed where possible. It reads no faster than the client does, and sends heartbeats while the
 * stream is silent. Resolves when the answer has ended in any way.
 */
export function carryStream(options: CarryOptions): Promise<CarriedEnd> {
  return carryTo(responseSink(options), options);
}

/** As `carryStream`, to any sink. Resolves when the sink is closed. */
export function carryTo(sink: StreamSink, options: CarryToOptions): Promise<CarriedEnd> {
  const { answer, signal } = options;
  const state = newStreamState(options, sink);
  const onAbort = () => signal.reason instanceof Problem && endWith(state, signal.reason);
  return new Promise((resolve) => {
    sink.open({
      full: () => state.upstream?.pause(),
      drained: () => state.upstream?.resume(),
      mayBeat: () => !state.over && !state.insideEvent && !state.endsWithCr,
      closed() {
        const openRun = openRunOf(state);
        close(state);
        signal.removeEventListener('abort', onAbort);
        resolve({ isComplete: state.isComplete, openRun });
      },
    });
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    if (state.over) answer.close();
    else attach(state, answer);
  });
}

/** The run that has begun and not ended, if the client leaves now: the relay itself has not ended the stream. */
function openRunOf({ over, cursor }: StreamState): string | undefined {
  return !over && runState(cursor) === 'begun' ? runIdOf(cursor) : undefined;
}

/** Reads the stream from this answer from now on. */
function attach(state: StreamState, answer: UpstreamAnswer): void {
  state.upstream = answer;
  // A closed answer may still deliver bytes, which are ignored.
  const isRead = () => state.upstream === answer && !state.over;
  answer.read({
    data(chunk) {
      if (isRead()) withoutFaults(state, take, chunk);
    },
    end() {
      const cause = state.head && endsInTail(state.head) ? 'partial_tail' : undefined;
      if (isRead()) withoutFaults(state, onAnswerOver, { answer, cause });
    },
    broken(cause) {
      if (isRead()) withoutFaults(state, onAnswerOver, { answer, cause });
    },
  });
  if (isRead() && state.sink.isFull()) answer.pause();
}

/** An exception of `work` is a fault of the relay: the stream must not be resumed as if its connection had failed. */
function withoutFaults<T>(state: StreamState, work: (state: StreamState, what: T) => void, what: T): void {
  try {
    work(state, what);
  } catch (error) {
    fail(state, error);
  }
}

function take(state: StreamState, chunk: Buffer): void {
  for (const piece of push(state.events, chunk)) {
    if (state.over) return;
    if (state.head) takeResumed(state, state.head, piece);
    else sendToClient(state, piece);
  }
}

/** Takes the next bytes of a resumed stream, which may repeat what was sent to the client before. */
function takeResumed(state: StreamState, head: ResumedHead, piece: StreamPiece): void {
  const { healing } = state;
  const verdict = takeHead(head, piece);
  if (verdict === 'new_run') {
    healing?.firstEvent('new_run');
    endBroken(state, verdict, verdict);
    return;
  }
  if (verdict === 'no_room') {
    healing?.recordOutcome('given_up', verdict);
    endBroken(state, verdict, verdict);
    return;
  }
  if (head.isProven) healing?.firstEvent('same_run');
  for (const sent of verdict.pieces) sendToClient(state, sent);
  if (!isDecided(head)) return;
  dropHead(head);
  state.head = undefined;
}

/** An answer that is over. */
interface AnswerEnd {
  readonly answer: UpstreamAnswer;
  /** Why it broke off; undefined if it has ended well for HTTP. */
  readonly cause: BreakCause | undefined;
}

/** The service's answer is over. */
function onAnswerOver(state: StreamState, { answer, cause }: AnswerEnd): void {
  const { cursor, events, insideEvent, endEvents } = state;
  // Not closed, since its connection may be used again.
  state.upstream = undefined;
  const run = runState(cursor);
  const brokeFor = cause ?? (isCutShort(answer, events) ? 'closed' : undefined);
  // After the end of a run nothing can be missing, except the rest of an event that was sent in part.
  const hasAll = run === 'ended' && !(brokeFor && insideEvent);
  const mayEndAnywhere = run === 'unknown' || !endEvents;
  if (hasAll) complete(state, cause);
  else if (!brokeFor && mayEndAnywhere) completeAsItCame(state);
  else resumeOrEnd(state, brokeFor ?? 'no_end_event');
}

/** The stream broke off for `cause`: resumes it if it stands at an event boundary and has an id. */
function resumeOrEnd(state: StreamState, cause: BreakCause): void {
  const { cursor, insideEvent } = state;
  if (insideEvent) {
    endBroken(state, cause, whyNotResumed(state));
    return;
  }
  forgetAnswer(state);
  state.healing?.recordOutcome('ended_early', cause);
  const point = healerOf(state) && resumePointOf(cursor);
  if (point) resume(state, point, cause);
  else endBroken(state, cause, whyNotResumed(state));
}

/** Why no attempt is made to resume the stream, which broke off. */
function whyNotResumed({ healer = 'off', cursor, insideEvent }: StreamState): NotResumed {
  if (typeof healer === 'string') return healer;
  return insideEvent ? 'unheld_event' : (obstacleTo(cursor) ?? 'no_id');
}

/**
 * Whether a body that ends with its connection broke off. The HTTP parser cannot know: a reset, or an end inside an
 * event, means that it did.
 */
function isCutShort(answer: UpstreamAnswer, events: WholeEvents): boolean {
  const { headers } = answer;
  const isFramed = headers['transfer-encoding'] !== undefined || headers['content-length'] !== undefined;
  return !isFramed && (answer.hasError() || isInsideEvent(events) || holds(events) === 'event');
}

/** Resumes the stream, which broke off for `cause`; ends it if that does not succeed. */
function resume(state: StreamState, point: ResumePoint, cause: BreakCause): void {
  const { holding } = state;
  const healer = healerOf(state);
  const resuming = new AbortController();
  state.resuming = resuming;
  healer
    ?.resume(point, resuming.signal)
    .then((answer) => {
      if (!answer) endBroken(state, cause, healer.isForbidden() ? 'new_run' : 'attempts_failed');
      else if (state.over) answer.close();
      else {
        state.events = wholeEvents(holding);
        state.head = resumedHead(point, holding.held);
        state.awaitsEvent = true;
        attach(state, answer);
      }
    })
    // It rejects only if its signal is aborted, and then the stream is over.
    .catch((error) => fail(state, error));
}

/** A live stream belongs to no message: there is nothing to resume, and no run whose end it must have. */
type LiveOptions = Omit<CarryOptions, 'lastEventId' | 'healer' | 'endEvents' | 'isLive'>;

/**
 * Carries a live stream in whole events, with heartbeats. If it ends early for any reason, the connection to the client
 * is cut: asking again costs nothing, and clients do so after a cut. Resolves when the answer has ended in any way.
 */
export async function carryLive(options: LiveOptions): Promise<void> {
  await carryStream({
    ...options,
    ...{ lastEventId: undefined, healer: undefined, endEvents: false, isLive: true },
  });
}
