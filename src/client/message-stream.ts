import { type BotEvent, LONGEST_TIMER_MS, readEvents } from './read-events.ts';
import { errorOfEvent, RelayError } from './relay-error.ts';

/** How often in a row a stream is resumed without a new id, before that counts as failed. */
const MAX_IDLE_RESUMES = 5;
/** How often in all: a service that gives new ids to the same events would else run for ever. */
const MAX_RESUMES = 50;
/** The pause before a stream is resumed, unless `retry:` says another; doubled for each further time without a new id. */
const RESUME_AFTER_MS = 1000;

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
 * A message that is sent once: only a stream whose events carry ids is asked for again, from the last of them on
 * (`Last-Event-ID`, WHATWG HTML §9.2.4), since any other second sending would be a second run of the bot.
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
  let lastEventId = '';
  let resumeAfterMs = RESUME_AFTER_MS;
  let idleResumes = 0;
  const reading = {
    silenceMs,
    onId: (id: string) => {
      lastEventId = id;
    },
    onRetry: (ms: number) => {
      resumeAfterMs = ms;
    },
  };
  signal?.addEventListener('abort', stop);
  if (signal?.aborted) stop();
  try {
    for (let resumes = 0; ; resumes++) {
      const resumedFrom = lastEventId;
      try {
        abort.signal.throwIfAborted();
        const response = await post(abort.signal, lastEventId);
        known.requestId = response.headers.get('X-Request-Id') ?? undefined;
        enter('streaming');
        for await (const event of readEvents(response, reading)) {
          const error = errorOfEvent(event);
          if (error) throw error;
          yield event;
          abort.signal.throwIfAborted();
        }
        return;
      } catch (error) {
        abort.signal.throwIfAborted();
        if (error instanceof RelayError) known.requestId = error.requestId ?? known.requestId;
        if (lastEventId !== resumedFrom) idleResumes = 0;
        const isOver = resumes === MAX_RESUMES || idleResumes === MAX_IDLE_RESUMES;
        if (isOver || !lastEventId || !isWorthResuming(error)) {
          onError(error);
          throw error;
        }
        enter('waiting');
        const pauseMs = resumeAfterMs * 2 ** idleResumes++;
        await pause(Math.max(pauseMs, (error.retryAfter ?? 0) * 1000), abort.signal);
      }
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    abort.abort();
    enter('done');
  }
}

/** Whether the run may still be there: the connection failed, or what failed on the way may pass. */
function isWorthResuming(error: unknown): error is RelayError {
  return error instanceof RelayError && (error.status === 0 || error.status === 429 || error.status > 500);
}

/** Resolves after `ms`, or as soon as the signal is aborted. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  await new Promise((resolve) => {
    timer = setTimeout(resolve, Math.min(ms, LONGEST_TIMER_MS));
    signal.addEventListener('abort', resolve);
    if (signal.aborted) resolve(undefined);
  });
  clearTimeout(timer);
}
