import type { Readable } from 'node:stream';
import { createParser } from 'eventsource-parser';
import { heldBytes } from '../relay/message/held-bytes.ts';
import { runEventOf } from '../relay/message/run-events.ts';
import { holds, isInsideEvent, push, wholeEvents } from '../relay/message/whole-events.ts';
import { codeOf } from './failure-advice.ts';
import { type AnsweredProblem, problemIn } from './judge-answer.ts';

/** How a stream of events arrived. Times in ms. A moment ends with a pause of more than `MOMENT_MS`. */
export interface Observation {
  /** From the request to the response's headers, to the first byte of its body, and to its end. */
  readonly headersMs: number;
  readonly firstByteMs: number | undefined;
  readonly endMs: number;
  readonly events: number;
  /** How many ids it carried, from which it can be resumed. */
  readonly ids: number;
  readonly moments: number;
  /** How many moments, without the last one, ended inside an event. */
  readonly tornMoments: number;
  /** From the first byte to the last. */
  readonly spreadMs: number;
  /** The longest silence between two events; heartbeats do not end it. */
  readonly longestSilenceMs: number;
  /** Comment lines that came in a moment of their own. */
  readonly heartbeats: number;
  /** Why the stream broke; `undefined` if it ended well. */
  readonly broken: string | undefined;
  /** The error that an event of the stream reported, in its own words. */
  readonly runError: string | undefined;
  /** What the relay said, if its error event was the first one: the message has failed. */
  readonly failure: AnsweredProblem | undefined;
}

/** A pause that is too short for a buffer or a person to notice, in ms. */
const MOMENT_MS = 25;
/** How much of an answer is read at most, in bytes: more than any text. */
const MAX_BYTES = 16 * 1024 * 1024;
/** Beyond so many bytes an event is not held, which makes no difference here. */
const MAX_HELD_BYTES = 64 * 1024;

/**
 * Reads a stream of events to its end. `sentAt` is when the request was sent, by `performance.now()`. `onRun` is called
 * with each id of a run, as an event has it.
 */
export async function observeStream(
  response: Readable,
  sentAt: number,
  onRun: (requestId: string) => void = () => {},
): Promise<Observation> {
  const headersMs = performance.now() - sentAt;
  const notes = noteArrivals(sentAt, onRun);
  let broken: string | undefined;
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      notes.take(chunk);
      if (bytes > MAX_BYTES) break;
    }
  } catch (error) {
    broken = codeOf(error);
  }
  return { headersMs, endMs: performance.now() - sentAt, broken, ...notes.result() };
}

type Arrivals = Omit<Observation, 'headersMs' | 'endMs' | 'broken'>;

function noteArrivals(sentAt: number, onRun: (requestId: string) => void) {
  const events = wholeEvents({
    maxBytes: MAX_HELD_BYTES,
    held: heldBytes(MAX_BYTES),
    onUnheld: () => undefined,
  });
  const decoder = new TextDecoder();
  const times: { firstAt?: number; lastAt: number; lastEventAt: number } = { lastAt: 0, lastEventAt: 0 };
  const counts = { events: 0, ids: 0, moments: 0, tornMoments: 0, heartbeats: 0 };
  let longestSilenceMs = 0;
  let runError: string | undefined;
  let failure: AnsweredProblem | undefined;
  const parser = createParser({
    onId: () => counts.ids++,
    onEvent({ event, data }) {
      counts.events++;
      runError ??= errorIn(data);
      if (event === 'error' && counts.events === 1) failure = problemIn(data, 200);
      if (failure) return;
      const { requestId } = runEventOf(data);
      if (typeof requestId === 'string') onRun(requestId);
    },
  });

  return {
    take(chunk: Buffer): void {
      const now = performance.now();
      const isNewMoment = times.firstAt === undefined || now - times.lastAt > MOMENT_MS;
      const isHeartbeat = isNewMoment && isComments(chunk);
      times.firstAt ??= now;
      if (isHeartbeat) counts.heartbeats++;
      else if (isNewMoment) {
        if (counts.moments > 0 && (isInsideEvent(events) || holds(events) !== 'nothing'))
          counts.tornMoments++;
        if (counts.moments > 0) longestSilenceMs = Math.max(longestSilenceMs, now - times.lastEventAt);
        counts.moments++;
      }
      times.lastAt = now;
      if (!isHeartbeat) times.lastEventAt = now;
      push(events, chunk);
      parser.feed(decoder.decode(chunk, { stream: true }));
    },
    result(): Arrivals {
      const { firstAt, lastAt } = times;
      const firstByteMs = firstAt === undefined ? undefined : firstAt - sentAt;
      const spreadMs = firstAt === undefined ? 0 : lastAt - firstAt;
      return { ...counts, firstByteMs, spreadMs, longestSilenceMs, runError, failure };
    },
  };
}

/** Whether a chunk holds comment lines and nothing else. */
function isComments(chunk: Buffer): boolean {
  return /^(:[^\r\n]*(\r\n|\n|\r))+$/.test(chunk.toString('latin1'));
}

/** The code and message of an error event, in the shape seen in the field, which the service does not specify. */
function errorIn(data: string): string | undefined {
  if (!data.includes('asgard.run.error')) return undefined;
  try {
    const { eventType, fact } = JSON.parse(data) as {
      eventType?: unknown;
      fact?: { runError?: { error?: { code?: unknown; message?: unknown } } };
    };
    if (eventType !== 'asgard.run.error') return undefined;
    const { code, message } = fact?.runError?.error ?? {};
    return [code, message].filter((part) => typeof part === 'string').join(': ');
  } catch {
    return undefined;
  }
}
