import { createParser } from 'eventsource-parser';
import type { BotEvent, Guards } from './bot-event.ts';
import { eventReader } from './known-events.ts';
import { errorOfEvent, RelayError } from './relay-error.ts';

/** The longest delay of a timer, in ms: with a longer one it fires at once (WHATWG HTML §8.7: signed 32 bits). */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export interface ReadEventsOptions {
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
export async function* readEvents(
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
  // Only the time of waiting for the relay counts, not the caller's own work. It counts in two halves: a page that was
  // busy reads the bytes that have arrived meanwhile before the second half ends.
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
    // If the caller stops reading, the relay closes its connection to the bot service, too.
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
