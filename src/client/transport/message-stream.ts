import { createParser } from 'eventsource-parser';
import { answerText } from './answer-text.ts';
import type { BotEvent, Guards } from './bot-event.ts';
import { eventReader } from './known-events.ts';
import { reconnecting, type StreamSources } from './reconnecting.ts';
import { errorOfEvent, RelayError } from './relay-error.ts';
import { pause } from './waits.ts';

/** The state of a message: not answered yet, or connecting again (`waiting`), being answered, or over. */
export type MessageState = 'waiting' | 'streaming' | 'done';

/**
 * The answer to a message, for one `for await`: its `text`, or all of its events. A second loop throws an Error. The
 * message is sent when reading begins, and is aborted when reading stops.
 */
export interface MessageStream extends AsyncIterable<BotEvent> {
  /** The text of the answer, in pieces to append. Reading it throws a RelayError if the run has failed, too. */
  readonly text: AsyncIterable<string>;
  /** What it does now. */
  readonly state: MessageState;
  /** The message's id in the relay's log; known as soon as the relay answers, even with an error. */
  readonly requestId: string | undefined;
}

export interface MessageStreamOptions extends StreamSources {
  /** Aborts the message. */
  readonly signal?: AbortSignal | undefined;
  /** Aborted when the session of the message has ended. */
  readonly ended: AbortSignal;
  readonly silenceMs: number;
  readonly guards?: Guards | undefined;
  readonly onState?: OnState | undefined;
  /** Called with the error with which the message ends. */
  readonly onError: (error: unknown) => void;
}

/** Called at each change of the state of `stream`. */
export type OnState = (state: MessageState, stream: MessageStream) => void;

/** How a message is sent. */
export interface SendOptions {
  /** Stops the answer. The bot's run may go on: only a suspend of its conversation stops it. */
  readonly signal?: AbortSignal | undefined;
  /** Called at each change of the answer's `state`. */
  readonly onState?: OnState | undefined;
}

interface StreamInfo {
  state: MessageState;
  requestId: string | undefined;
}

/**
 * A message that is sent once. If the connection fails, the relay is asked for its stream again, since to send again could
 * be a second run of the bot. An error event of the relay ends it, unless the run can be joined or the stream resumed.
 * Without `open`, it is the stream of a message that was sent before, and empty if the relay has none. Reading throws
 * RelayError, or the reason of `signal` once that is aborted.
 */
export function messageStream(options: MessageStreamOptions): MessageStream {
  const info: StreamInfo = { state: 'waiting', requestId: undefined };
  const enter = (state: MessageState) => {
    if (info.state === state) return;
    info.state = state;
    options.onState?.(state, stream);
  };
  const events = readOnce(eventsOf(options, info, enter));
  const stream = Object.assign(info, events, { text: readOnce(answerText(events)) });
  return stream;
}

/** Asks for the stream, and again after each break, and reads its events. */
async function* eventsOf(
  options: MessageStreamOptions,
  info: StreamInfo,
  enter: (state: MessageState) => void,
): AsyncGenerator<BotEvent, void, void> {
  const { signal: given, ended, silenceMs, guards } = options;
  const abort = new AbortController();
  const { signal } = abort;
  const stop = () => abort.abort(given?.reason);
  const connection = reconnecting(options);
  if (given?.aborted) stop();
  given?.addEventListener('abort', stop, { signal });
  try {
    for (;;) {
      try {
        signal.throwIfAborted();
        const response = await connection.ask(signal);
        info.requestId = response.headers.get('X-Request-Id') ?? undefined;
        enter('streaming');
        for await (const event of readEvents(response, { ...connection, silenceMs, guards })) {
          if (event instanceof RelayError) {
            connection.onErrorEvent(event);
            throw event;
          }
          yield event;
          signal.throwIfAborted();
        }
        connection.end();
        return;
      } catch (error) {
        signal.throwIfAborted();
        const pauseMs = connection.pauseAfter(error);
        if (pauseMs === undefined) return;
        enter('waiting');
        signal.throwIfAborted();
        await pause(pauseMs, { signal, ended });
      }
    }
  } catch (error) {
    info.requestId = (error as Partial<RelayError> | undefined)?.requestId ?? info.requestId;
    if (!signal.aborted) options.onError(error);
    throw error;
  } finally {
    abort.abort();
    enter('done');
  }
}

/** The same events, for one loop. A second loop throws: it would look like an answer without events. */
export function readOnce<T>(events: AsyncIterator<T>): AsyncIterable<T> {
  let isRead = false;
  return {
    [Symbol.asyncIterator]() {
      if (isRead) throw new Error('An answer can be read once.');
      isRead = true;
      return events;
    },
  };
}

/** The longest delay of a timer, in ms: with a longer one it fires at once (WHATWG HTML §8.7: signed 32 bits). */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

interface ReadEventsOptions {
  /** How long no byte may arrive before the connection counts as lost, in ms. The relay sends heartbeats more often. */
  readonly silenceMs: number;
  /** Called with each event id, from which the stream can be resumed, before the event is read. */
  readonly onId: (id: string) => void;
  /** Called with the time to wait before a resumption, in ms. */
  readonly onRetry: (ms: number) => void;
  /** Called with each event of the bot, and returns those that were not read before. */
  readonly take: (event: BotEvent, data: string) => readonly BotEvent[];
  /** Guards of the application. */
  readonly guards?: Guards | undefined;
}

/**
 * Reads the events of a stream as they arrive (WHATWG HTML §9.2.6): those of the bot, and the error of the relay as an
 * error. An incomplete event at the end is dropped.
 * @throws RelayError `connection_lost` or `connection_silent`
 */
async function* readEvents(
  response: Response,
  options: ReadEventsOptions,
): AsyncGenerator<BotEvent | RelayError> {
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  const events: (BotEvent | RelayError)[] = [];
  const typed = eventReader(options.guards);
  const parser = createParser({
    ...options,
    onEvent({ event = 'message', data, id }) {
      const raw = parsed(data);
      const error = errorOfEvent(event, raw);
      events.push(...(error ? [error] : options.take(typed(raw, event, id), data)));
    },
  });
  const failed = (how: 'lost' | 'silent') =>
    new RelayError(`The connection is ${how}.`, {
      code: `connection_${how}`,
      status: 0,
      requestId: response.headers.get('X-Request-Id') ?? undefined,
    });
  // Only the time of waiting for the relay counts, not the caller's own work. The timer fires twice: a page that was busy
  // for long reads the bytes that have arrived meanwhile between the two.
  const read = () =>
    new Promise<Awaited<ReturnType<typeof reader.read>>>((resolve, reject) => {
      let halves = 0;
      const timer = setInterval(
        () => halves++ && reject(failed('silent')),
        Math.min(options.silenceMs / 2, LONGEST_TIMER_MS),
      );
      reader
        .read()
        .then(resolve, () => reject(failed('lost')))
        .finally(() => clearInterval(timer));
    });
  try {
    for (;;) {
      const { done, value } = await read();
      if (done) return;
      parser.feed(decoder.decode(value, { stream: true }));
      yield* events.splice(0);
    }
  } finally {
    // If the caller stops reading, the connection to the relay is closed.
    reader.cancel().catch(() => {});
  }
}

function parsed(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return data;
  }
}
