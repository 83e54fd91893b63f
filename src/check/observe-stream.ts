import { createParser } from 'eventsource-parser';
import { codeOf } from './advice.ts';
import { type AnsweredProblem, jsonOf, problemIn } from './answers.ts';
import { type Opened, TIMED_OUT } from './http-client.ts';

/** A pause that is too short for a buffer or a person to notice, in ms. */
const MOMENT_MS = 25;
/** How much of an answer is read at most, in bytes: more than any text. */
const MAX_BYTES = 16 * 1024 * 1024;
/** A piece that holds comment lines and nothing else. */
const COMMENTS = /^(:[^\r\n]*(\r\n|\n|\r))+$/;
/** The end of a whole event, with any ends of lines (WHATWG HTML §9.2.5). */
const EVENT_END = /(\n\r?\n|\r\r)$/;

export interface ObservingOptions {
  /** How long the stream may take from now, in ms. */
  readonly limitMs: number;
  /** Called with each id of a run, as an event has it. */
  readonly onRun?: (requestId: string) => void;
}

/** Reads a stream of events to its end. */
export async function observeStream(
  { response, sentAt }: Opened,
  { limitMs, onRun = () => {} }: ObservingOptions,
): Promise<Observation> {
  const seen = new Observation(sentAt, onRun);
  const decoder = new TextDecoder();
  const timer = setTimeout(() => response.destroy(TIMED_OUT), limitMs);
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      seen.take(decoder.decode(chunk, { stream: true }));
      bytes += chunk.length;
      if (bytes > MAX_BYTES) break;
    }
  } catch (error) {
    seen.broken = codeOf(error);
  } finally {
    clearTimeout(timer);
  }
  seen.endMs = performance.now() - sentAt;
  return seen;
}

/** How a stream of events arrived. Times in ms, since the request was sent. A moment ends with a pause. */
export class Observation {
  headersMs: number;
  firstByteMs: number | undefined;
  lastByteMs = 0;
  endMs = 0;
  events = 0;
  /** How many ids it carried, from which it can be resumed. */
  ids = 0;
  moments = 0;
  /** How many moments, without the last one, ended inside an event. */
  tornMoments = 0;
  /** Comment lines that came in a moment of their own. */
  heartbeats = 0;
  /** The longest silence between two events; heartbeats do not end it. */
  longestSilenceMs = 0;
  /** Why the stream broke; `undefined` if it ended well. */
  broken: string | undefined;
  /** The error that an event of the stream reported, in its own words. */
  runError: string | undefined;
  /** What the relay said, if its error event was the first one: the message has failed. */
  failure: AnsweredProblem | undefined;
  readonly #sentAt: number;
  readonly #parser;
  #lastEventMs = 0;
  /** The last characters that were no heartbeat. */
  #tail = '';

  constructor(sentAt: number, onRun: (requestId: string) => void) {
    this.#sentAt = sentAt;
    this.headersMs = performance.now() - sentAt;
    this.#parser = createParser({
      onId: () => void this.ids++,
      onEvent: ({ event, data }) => {
        this.events++;
        if (event === 'error' && this.events === 1) this.failure = problemIn(data, 200);
        const { eventType, requestId, fact } = Object(jsonOf(data)) as Partial<RunEvent>;
        if (eventType === 'asgard.run.error') this.runError ??= errorIn(fact);
        if (typeof requestId === 'string' && !this.failure) onRun(requestId);
      },
    });
  }

  /** From the first byte to the last. */
  get spreadMs(): number {
    return this.firstByteMs === undefined ? 0 : this.lastByteMs - this.firstByteMs;
  }

  /** Takes a piece that has just arrived. */
  take(text: string): void {
    const now = performance.now() - this.#sentAt;
    const isNewMoment = this.firstByteMs === undefined || now - this.lastByteMs > MOMENT_MS;
    this.firstByteMs ??= now;
    this.lastByteMs = now;
    if (isNewMoment && COMMENTS.test(text)) this.heartbeats++;
    else {
      if (isNewMoment && this.moments > 0) {
        if (!EVENT_END.test(this.#tail)) this.tornMoments++;
        this.longestSilenceMs = Math.max(this.longestSilenceMs, now - this.#lastEventMs);
      }
      if (isNewMoment) this.moments++;
      this.#lastEventMs = now;
      this.#tail = (this.#tail + text).slice(-3);
    }
    this.#parser.feed(text);
  }
}

/** An event in the shape seen in the field, which the service does not specify. */
interface RunEvent {
  readonly eventType: unknown;
  readonly requestId: unknown;
  readonly fact: {
    readonly runError?: { readonly error?: { readonly code?: unknown; readonly message?: unknown } };
  };
}

/** The code and message of an error event. */
function errorIn(fact: Partial<RunEvent>['fact']): string {
  const { code, message } = fact?.runError?.error ?? {};
  return [code, message].filter((part) => typeof part === 'string').join(': ');
}
