import { createParser } from 'eventsource-parser';
import { RelayError } from './relay-error.ts';

/** In ms; a timer that is set for longer fires at once (WHATWG HTML §8.7: signed 32 bits). */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** One server-sent event of an answer. */
export interface BotEvent {
  /** Its kind; `message` if it has none. */
  readonly event: string;
  /** Its data: parsed if they are JSON, else the text. */
  readonly data: unknown;
  /** Its id, if it has one. */
  readonly id: string | undefined;
}

export interface ReadEventsOptions {
  /** Nothing at all for so long, in ms, is a dead connection: the relay breaks silences with comment lines. */
  readonly silenceMs: number;
  /** Told of each position from which the stream could be resumed, before its event is read. */
  readonly onId: (id: string) => void;
  /** Told how long to wait before that, in ms. */
  readonly onRetry: (ms: number) => void;
}

/**
 * The events of a stream as they come (WHATWG HTML §9.2.6). An event that is not whole at the end is dropped.
 * @throws RelayError `connection_lost` or `connection_silent`
 */
export async function* readEvents(response: Response, options: ReadEventsOptions): AsyncGenerator<BotEvent> {
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  const events: BotEvent[] = [];
  const parser = createParser({
    ...options,
    onEvent: ({ event = 'message', data, id }) => events.push({ event, data: parsed(data), id }),
  });
  const failed = (code: 'connection_lost' | 'connection_silent', message: string) =>
    new RelayError(message, {
      code,
      status: 0,
      requestId: response.headers.get('X-Request-Id') ?? undefined,
    });
  // Only waiting for the relay counts, not what the caller does between two events. It counts in two halves: a page
  // that was too busy to read sees what came meanwhile before the second.
  const read = () =>
    new Promise<Awaited<ReturnType<typeof reader.read>>>((resolve, reject) => {
      let halves = 0;
      const timer = setInterval(
        () => ++halves > 1 && reject(failed('connection_silent', 'The connection went silent.')),
        Math.min(options.silenceMs / 2, LONGEST_TIMER_MS),
      );
      reader
        .read()
        .then(resolve, () => reject(failed('connection_lost', 'The connection broke off.')))
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
    // Whoever stops reading stops the run.
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
