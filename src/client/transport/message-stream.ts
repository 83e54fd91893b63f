import type { BotEvent, Guards } from './bot-event.ts';
import { readEvents } from './read-events.ts';
import { readOnce } from './read-once.ts';
import { RelayError } from './relay-error.ts';
import { type Ways, wayBack } from './way-back.ts';

/** The state of a message: not answered yet, or connecting again (`waiting`), being answered, or over. */
export type MessageState = 'waiting' | 'streaming' | 'done';

/**
 * The answer to a message: its events, for one `for await`. A second loop throws an Error. The message is sent when
 * reading begins, and is aborted when reading stops.
 */
export interface MessageStream extends AsyncIterable<BotEvent> {
  /** What it does now. */
  readonly state: MessageState;
  /** The message's id in the relay's log; known as soon as the relay answers, even with an error. */
  readonly requestId: string | undefined;
}

export interface MessageStreamOptions extends Ways {
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
 * A message that is sent once. If the connection fails, the relay is asked for its stream again; sending again could be
 * a second run of the bot. An error event of the relay ends it, unless it says that the run can be joined, or is lost
 * after an event with an id. Without `open`, the stream of a message that was sent before: empty if the relay has none.
 * Reading throws RelayError, or the reason of `signal` once it is aborted.
 */
export function messageStream(options: MessageStreamOptions): MessageStream {
  const info: StreamInfo = { state: 'waiting', requestId: undefined };
  const enter = (state: MessageState) => {
    if (info.state === state) return;
    info.state = state;
    options.onState?.(state, stream);
  };
  const stream = Object.assign(info, readOnce(run(options, info, enter)));
  return stream;
}

async function* run(
  options: MessageStreamOptions,
  info: StreamInfo,
  enter: (state: MessageState) => void,
): AsyncGenerator<BotEvent, void, void> {
  const { signal, ended, silenceMs, guards } = options;
  const abort = new AbortController();
  const stop = () => abort.abort(signal?.reason);
  const way = wayBack(options);
  if (signal?.aborted) stop();
  signal?.addEventListener('abort', stop, { signal: abort.signal });
  try {
    for (;;) {
      try {
        abort.signal.throwIfAborted();
        const response = await way.ask(abort.signal);
        info.requestId = response.headers.get('X-Request-Id') ?? undefined;
        enter('streaming');
        for await (const event of readEvents(response, { ...way, silenceMs, guards })) {
          if (event instanceof RelayError) {
            way.onErrorEvent(event);
            throw event;
          }
          yield event;
          abort.signal.throwIfAborted();
        }
        way.end();
        return;
      } catch (error) {
        abort.signal.throwIfAborted();
        const pauseMs = way.pauseAfter(error);
        if (pauseMs === undefined) return;
        enter('waiting');
        abort.signal.throwIfAborted();
        await pause(pauseMs, { signal: abort.signal, ended });
      }
    }
  } catch (error) {
    info.requestId = (error as Partial<RelayError> | undefined)?.requestId ?? info.requestId;
    if (!abort.signal.aborted) options.onError(error);
    throw error;
  } finally {
    abort.abort();
    enter('done');
  }
}

/** Waits so many ms, or until `signal` is aborted or the session has `ended`. */
function pause(ms: number, { signal, ended }: { signal: AbortSignal; ended: AbortSignal }): Promise<void> {
  return new Promise((resolve) => {
    const end = () => resolve(clearTimeout(timer));
    const timer = setTimeout(end, ms);
    signal.onabort = end;
    ended.addEventListener('abort', end, { signal });
    if (ended.aborted) end();
  });
}
