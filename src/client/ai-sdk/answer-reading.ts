import type { BotEvent } from '../transport/bot-event.ts';
import type { MessageStream } from '../transport/message-stream.ts';
import { asRelayError, RelayError, signedOut } from '../transport/relay-error.ts';
import { answerChunks } from './answer-chunks.ts';
import type { AnswerChunk } from './chat-types.ts';
import type { Visit } from './visits.ts';

type Next = Promise<IteratorResult<BotEvent, unknown>>;

/** An answer that is being read. */
export interface AnswerReading {
  readonly stream: MessageStream;
  readonly first: Next;
  /** Reads the next event; at first, that is `first`. */
  readonly next: () => Next;
  /** Reads no further; the run goes on. */
  readonly leave: () => void;
}

/** Begins to read an answer: its message is sent now. `abort` ends it. */
export function readAnswer(stream: MessageStream, abort: AbortController): AnswerReading {
  const events = stream[Symbol.asyncIterator]();
  const first = events.next();
  let begun: Next | undefined = first;
  return {
    ...{ stream, first },
    async next() {
      const read = await (begun ?? events.next());
      begun = undefined;
      abort.signal.throwIfAborted();
      return read;
    },
    leave() {
      abort.abort();
      // If nothing is being read, the abort alone does not end it.
      void events.return?.();
    },
  };
}

/** How a chat shows an answer. */
export interface AnswerOptions {
  /** The answer is left at the end of this visit. */
  readonly visit: Visit;
  /** The id of the message that it continues. Without it, the answer is a new message, with the id of its run. */
  readonly continues?: string | undefined;
  /** Aborted when the user stops the answer. It is left when the stop is done. */
  readonly signal: AbortSignal | undefined;
}

/** The chunks of an answer. Reading them throws RelayError. */
export function chunkStream(reading: AnswerReading, options: AnswerOptions): ReadableStream<AnswerChunk> {
  const chunks = chunksOf(reading, options);
  return new ReadableStream<AnswerChunk>({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel() {
      if (!options.signal?.aborted) reading.leave();
      void chunks.return();
    },
  });
}

async function* chunksOf(
  { stream, next, leave }: AnswerReading,
  { visit, continues }: AnswerOptions,
): AsyncGenerator<AnswerChunk, void> {
  const answer = answerChunks();
  const begin = (first?: BotEvent): AnswerChunk[] => {
    const messageId = continues ?? first?.runId;
    const messageMetadata = stream.requestId === undefined ? {} : { requestId: stream.requestId };
    const start = { type: 'start', ...(messageId !== undefined && { messageId }), messageMetadata } as const;
    // A new step: decisions about the tool calls of an earlier step are not sent again.
    return [start, { type: 'start-step' }];
  };
  visit.ended.addEventListener('abort', leave);
  try {
    if (visit.ended.aborted) leave();
    let read = await next();
    yield* begin(read.done ? undefined : read.value);
    for (; !read.done; read = await next()) yield* answer.take(read.value);
  } catch (thrown) {
    // Another user may be there: an error would be shown to them.
    if (visit.isLeft()) throw new DOMException('The user has left.', 'AbortError');
    throw visit.ended.aborted && !(thrown instanceof RelayError)
      ? signedOut()
      : asRelayError(thrown, stream.requestId);
  } finally {
    visit.ended.removeEventListener('abort', leave);
  }
  yield* answer.end();
}
