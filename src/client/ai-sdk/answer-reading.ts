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
  /** Each event, also the first one. */
  readonly next: () => Next;
  /** Reads no further; the run goes on. */
  readonly leave: () => void;
}

/** Begins to read an answer, which `abort` ends: a message is sent now. */
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
      // An answer whose reader is slow ends only so.
      void events.return?.();
    },
  };
}

/** What a chat shows of an answer. */
export interface AnswerOptions {
  /** At its end, the answer is left. */
  readonly visit: Visit;
  /** The message of the chat that it continues. Without it, it is a message of its own, with the id of its run. */
  readonly continues?: string | undefined;
  /** Aborted when the user stops the answer, which is left after that. */
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
    // What was decided about tool calls of an earlier step is not sent again.
    return [start, { type: 'start-step' }];
  };
  visit.ended.addEventListener('abort', leave);
  try {
    if (visit.ended.aborted) leave();
    let read = await next();
    yield* begin(read.done ? undefined : read.value);
    for (; !read.done; read = await next()) yield* answer.take(read.value);
  } catch (thrown) {
    // An error without a user would be shown to the next one.
    if (visit.isLeft()) throw new DOMException('The user has left.', 'AbortError');
    throw visit.ended.aborted && !(thrown instanceof RelayError)
      ? signedOut()
      : asRelayError(thrown, stream.requestId);
  } finally {
    visit.ended.removeEventListener('abort', leave);
  }
  yield* answer.end();
}
