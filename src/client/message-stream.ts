import { type BotEvent, readEvents } from './read-events.ts';
import { errorOfEvent, RelayError } from './relay-error.ts';

/** How often in a row a stream is resumed without a new event, before that counts as failed. */
const MAX_RESUMES = 5;
const RESUME_AFTER_MS = 1000;

/** Where a message stands: sent and not answered yet, being answered, over. */
export type MessageState = 'waiting' | 'streaming' | 'done';

/** The answer to a message. The message is sent when somebody begins to read, and is stopped when nobody does any more. */
export interface MessageStream extends AsyncIterable<BotEvent, void, void> {
  readonly state: MessageState;
  /** Finds the message in the relay's log; known as soon as the answer begins. */
  readonly requestId: string | undefined;
}

export interface MessageStreamOptions {
  /** Sends the message; `lastEventId` resumes its run. @throws RelayError */
  readonly post: (signal: AbortSignal, lastEventId: string | undefined) => Promise<Response>;
  /** Stops the message. */
  readonly signal?: AbortSignal | undefined;
  readonly silenceMs: number;
  readonly onState?: ((state: MessageState) => void) | undefined;
  /** Told of the error with which the message ends. */
  readonly onError: (error: unknown) => void;
}

/**
 * A message that is sent once: only a stream whose events carry ids is asked for again, from the last of them on
 * (`Last-Event-ID`, WHATWG HTML §9.2.4), since any other second sending would be a second run of the bot.
 * Reading throws RelayError, or the signal's reason once that is aborted.
 */
export function messageStream(options: MessageStreamOptions): MessageStream {
  const { onState } = options;
  const stream = {
    state: 'waiting' as MessageState,
    requestId: undefined as string | undefined,
    [Symbol.asyncIterator]: () => run(options, enter),
  };
  function enter(state: MessageState, response?: Response): void {
    stream.requestId = response?.headers.get('X-Request-Id') ?? stream.requestId;
    if (stream.state === state) return;
    stream.state = state;
    onState?.(state);
  }
  return stream;
}

type Enter = (state: MessageState, response?: Response) => void;

async function* run(
  { post, signal, silenceMs, onError }: MessageStreamOptions,
  enter: Enter,
): AsyncGenerator<BotEvent, void, void> {
  const abort = new AbortController();
  const stop = () => abort.abort(signal?.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener('abort', stop);
  let lastEventId: string | undefined;
  let resumeAfterMs = RESUME_AFTER_MS;
  let resumes = 0;
  const reading = {
    silenceMs,
    onId: (id: string) => {
      lastEventId = id;
    },
    onRetry: (ms: number) => {
      resumeAfterMs = ms;
    },
  };
  try {
    for (;;) {
      try {
        const response = await post(abort.signal, lastEventId);
        enter('streaming', response);
        for await (const event of readEvents(response, reading)) {
          resumes = 0;
          const error = errorOfEvent(event.event, event.data);
          if (error) throw error;
          yield event;
        }
        return;
      } catch (error) {
        if (abort.signal.aborted) throw abort.signal.reason;
        if (!lastEventId || !isWorthResuming(error) || ++resumes > MAX_RESUMES) {
          onError(error);
          throw error;
        }
        enter('waiting');
        await pause(Math.max(resumeAfterMs, (error.retryAfter ?? 0) * 1000), abort.signal);
      }
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    abort.abort();
    enter('done');
  }
}

/** Whether the run may still be there: the connection failed, or the relay asks to come back later. */
function isWorthResuming(error: unknown): error is RelayError {
  return error instanceof RelayError && (error.status === 0 || error.retryAfter !== undefined);
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal.addEventListener('abort', stop, { once: true });
  });
}
