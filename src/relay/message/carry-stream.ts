import { Problem } from '../../errors.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { BreakCause, NotResumed } from './break-causes.ts';
import {
  type Carriage,
  type CarriageOptions,
  type CarryOptions,
  close,
  complete,
  completeAsItCame,
  endBroken,
  endWith,
  fail,
  forgetAnswer,
  healerOf,
  newCarriage,
  sendDownstream,
} from './carriage.ts';
import { cursorState } from './cursor-state.ts';
import { responseSink } from './response-sink.ts';
import { dropHead, endsInTail, isDecided, type ResumedHead, resumedHead, takeHead } from './resumed-head.ts';
import { obstacleTo, type ResumePoint, resumePointOf, runIdOf, runState } from './stream-cursor.ts';
import type { StreamSink } from './stream-sink.ts';
import { holds, isInsideEvent, type Passed, push, type WholeEvents, wholeEvents } from './whole-events.ts';

/** How a stream has ended. */
export interface CarriedEnd {
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

/** The same to any sink, which alone knows its clients. Resolves when the sink is closed. */
export function carryTo(sink: StreamSink, options: CarriageOptions): Promise<CarriedEnd> {
  const { answer: from, signal } = options;
  const answer = 'read' in from ? from : undefined;
  const carriage = newCarriage(options, sink, 'read' in from ? undefined : from);
  const onAbort = () => signal.reason instanceof Problem && endWith(carriage, signal.reason);
  return new Promise((resolve) => {
    sink.open({
      full: () => carriage.upstream?.pause(),
      drained: () => carriage.upstream?.resume(),
      mayBeat: () => !carriage.over && !carriage.insideEvent && !carriage.endsWithCr,
      resumeState: () => (typeof carriage.healer === 'function' ? cursorState(carriage.cursor) : undefined),
      closed() {
        const openRun = openRunOf(carriage);
        close(carriage);
        signal.removeEventListener('abort', onAbort);
        resolve({ isComplete: carriage.isComplete, openRun });
      },
    });
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    if (carriage.over) answer?.close();
    else if (answer) attach(carriage, answer);
    else resumeOrEnd(carriage, 'instance_lost');
  });
}

/** The run that has begun and not ended, if the client leaves now: the relay itself has not ended the stream. */
function openRunOf({ over, cursor }: Carriage): string | undefined {
  return !over && runState(cursor) === 'begun' ? runIdOf(cursor) : undefined;
}

/** Reads the stream from this answer from now on. */
function attach(carriage: Carriage, answer: UpstreamAnswer): void {
  carriage.upstream = answer;
  // What a closed answer still delivers is ignored.
  const isRead = () => carriage.upstream === answer && !carriage.over;
  answer.read({
    data(chunk) {
      if (isRead()) withoutFaults(carriage, take, chunk);
    },
    end() {
      const cause = carriage.head && endsInTail(carriage.head) ? 'partial_tail' : undefined;
      if (isRead()) withoutFaults(carriage, whenOver, { answer, cause });
    },
    broken(cause) {
      if (isRead()) withoutFaults(carriage, whenOver, { answer, cause });
    },
  });
  if (isRead() && carriage.sink.isFull()) answer.pause();
}

/** An exception in here is a fault of the relay: it must not look like a fault of the connection, and be healed. */
function withoutFaults<T>(carriage: Carriage, work: (carriage: Carriage, what: T) => void, what: T): void {
  try {
    work(carriage, what);
  } catch (error) {
    fail(carriage, error);
  }
}

function take(carriage: Carriage, chunk: Buffer): void {
  for (const passed of push(carriage.events, chunk)) {
    if (carriage.over) return;
    if (carriage.head) takeResumed(carriage, carriage.head, passed);
    else sendDownstream(carriage, passed);
  }
}

/** Takes the next bytes of a resumed stream that may repeat what went down before. */
function takeResumed(carriage: Carriage, head: ResumedHead, passed: Passed): void {
  const { healing } = carriage;
  const verdict = takeHead(head, passed);
  if (verdict === 'new_run') {
    healing?.firstEvent('new_run');
    endBroken(carriage, verdict, verdict);
    return;
  }
  if (verdict === 'no_room') {
    healing?.recordOutcome('given_up', verdict);
    endBroken(carriage, verdict, verdict);
    return;
  }
  if (head.isProven) healing?.firstEvent('same_run');
  for (const down of verdict.down) sendDownstream(carriage, down);
  if (!isDecided(head)) return;
  dropHead(head);
  carriage.head = undefined;
}

/** An answer that is over. */
interface AnswerEnd {
  readonly answer: UpstreamAnswer;
  readonly cause: BreakCause | undefined;
}

/** The service's answer is over: `cause` says why it broke off, or is undefined if HTTP took its end for a good one. */
function whenOver(carriage: Carriage, { answer, cause }: AnswerEnd): void {
  const { cursor, events, insideEvent, endEvents } = carriage;
  // It must not be closed: its connection may be used again.
  carriage.upstream = undefined;
  const run = runState(cursor);
  const brokeFor = cause ?? (isCutShort(answer, events) ? 'closed' : undefined);
  // After the end of a run nothing can be missing, except the rest of an event that went down in part.
  const hasAll = run === 'ended' && !(brokeFor && insideEvent);
  const mayEndAnywhere = run === 'unknown' || !endEvents;
  if (hasAll) complete(carriage, cause);
  else if (!brokeFor && mayEndAnywhere) completeAsItCame(carriage);
  else resumeOrEnd(carriage, brokeFor ?? 'no_end_event');
}

/** The stream broke off for `cause`: resumes it if it stands at an event boundary and has an id. */
function resumeOrEnd(carriage: Carriage, cause: BreakCause): void {
  const { cursor, insideEvent } = carriage;
  if (insideEvent) {
    endBroken(carriage, cause, whyNotResumed(carriage));
    return;
  }
  forgetAnswer(carriage);
  carriage.healing?.recordOutcome('ended_early', cause);
  const point = healerOf(carriage) && resumePointOf(cursor);
  if (point) resume(carriage, point, cause);
  else endBroken(carriage, cause, whyNotResumed(carriage));
}

/** Why the stream, which broke off, is not even tried to be resumed. */
function whyNotResumed({ healer = 'off', cursor, insideEvent }: Carriage): NotResumed {
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
function resume(carriage: Carriage, point: ResumePoint, cause: BreakCause): void {
  const { holding } = carriage;
  const healer = healerOf(carriage);
  const resuming = new AbortController();
  carriage.resuming = resuming;
  healer
    ?.resume(point, resuming.signal)
    .then((answer) => {
      if (!answer) endBroken(carriage, cause, healer.isForbidden() ? 'new_run' : 'attempts_failed');
      else if (carriage.over) answer.close();
      else {
        carriage.events = wholeEvents(holding);
        carriage.head = resumedHead(point, holding.held);
        carriage.awaitsEvent = true;
        attach(carriage, answer);
      }
    })
    // It rejects with the reason of its signal, which is aborted only when the stream is over.
    .catch((error) => fail(carriage, error));
}
