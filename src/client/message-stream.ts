import { type BotEvent, readEvents } from './read-events.ts';
import { errorOfEvent, type RelayError } from './relay-error.ts';
import { resumption } from './resumption.ts';

/** Where a message stands: sent and not answered yet, being answered, over. */
export type MessageState = 'waiting' | 'streaming' | 'done';

/**
 * The answer to a message, to be read once. The message is sent when somebody begins to read, and is stopped when
 * nobody does any more.
 */
export interface MessageStream extends AsyncIterable<BotEvent, void, void> {
  readonly state: MessageState;
  /** Finds the message in the relay's log; known as soon as the relay answers, whatever it answers. */
  readonly requestId: string | undefined;
}

export interface MessageStreamOptions {
  /** Sends the message; `lastEventId`, if it is not empty, resumes its run. @throws RelayError */
  readonly post: (signal: AbortSignal, lastEventId: string) => Promise<Response>;
  /** Stops the message. */
  readonly signal?: AbortSignal | undefined;
  readonly silenceMs: number;
  readonly onState?: ((state: MessageState) => void) | undefined;
  /** Told of the error with which the message ends. */
  readonly onError: (error: unknown) => void;
}

interface Known {
  state: MessageState;
  requestId: string | undefined;
}

/**
 * A message that is sent once: only a stream whose events carry ids is asked for again, from the last of them on,
 * since any other second sending would be a second run of the bot.
 * Reading throws RelayError, or the signal's reason once that is aborted.
 */
export function messageStream(options: MessageStreamOptions): MessageStream {
  const known: Known = { state: 'waiting', requestId: undefined };
  // One for all who read: a second loop over it must not send the message a second time.
  const reading = run(options, known);
  return Object.assign(known, { [Symbol.asyncIterator]: () => reading });
}

async function* run(
  { post, signal, silenceMs, onState, onError }: MessageStreamOptions,
  known: Known,
): AsyncGenerator<BotEvent, void, void> {
  const abort = new AbortController();
  const stop = () => abort.abort(signal?.reason);
  const enter = (state: MessageState) => {
    if (known.state === state) return;
    known.state = state;
    onState?.(state);
  };
  const position = resumption();
  signal?.addEventListener('abort', stop);
  if (signal?.aborted) stop();
  try {
    for (;;) {
      try {
        abort.signal.throwIfAborted();
        const response = await post(abort.signal, position.from());
        known.requestId = response.headers.get('X-Request-Id') ?? undefined;
        enter('streaming');
        for await (const event of readEvents(response, { ...position, silenceMs })) {
          const error = errorOfEvent(event);
          if (error) throw error;
          yield event;
          abort.signal.throwIfAborted();
        }
        return;
      } catch (error) {
        abort.signal.throwIfAborted();
        known.requestId = (error as Partial<RelayError> | undefined)?.requestId ?? known.requestId;
        const pauseMs = position.pauseAfter(error);
        if (pauseMs === undefined) {
          onError(error);
          throw error;
        }
        enter('waiting');
        abort.signal.throwIfAborted();
        await pause(pauseMs, abort.signal);
      }
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    abort.abort();
    enter('done');
  }
}

/** Resolves after `ms`, or as soon as the signal is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.onabort = () => resolve(clearTimeout(timer));
  });
}
