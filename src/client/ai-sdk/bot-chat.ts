import { type Suspension, suspension } from '../channel/channel-stop.ts';
import type { ConversationMessages } from '../channel/conversation-messages.ts';
import type { MessageStream } from '../transport/message-stream.ts';
import { RelayError, signedOut } from '../transport/relay-error.ts';
import { abortOf } from '../transport/waits.ts';
import { type AnswerReading, chunkStream, readAnswer } from './answer-reading.ts';
import { blobIdsOf, type Outgoing } from './chat-message.ts';
import type { AnswerChunk } from './chat-types.ts';
import type { Visit } from './visits.ts';

type Chunks = ReadableStream<AnswerChunk>;
type Signal = AbortSignal | undefined;

/** A chat of the AI SDK, which is one conversation. An abort stops what runs in it, and leaves the answer. */
export interface BotChat {
  /** Sends a message. @throws RelayError, or the signal's reason */
  readonly send: (message: Outgoing, signal: Signal) => Promise<Chunks>;
  /** Joins the newest answer that had not ended; null if there is none. @throws RelayError, or the signal's reason */
  readonly join: (signal: Signal) => Promise<Chunks | null>;
  /** Whether this message was sent last, and the bot has surely not run for it. */
  readonly isUnsent: (messageId: string) => boolean;
}

export interface BotChatDependencies {
  readonly talk: ConversationMessages;
  /** The current visit of a user, who alone may see an answer that begins now. */
  readonly visit: () => Visit;
  /** Called with the error of a stop. */
  readonly fail: (thrown: unknown) => void;
}

/** Makes the chat of a conversation. */
export function botChat({ talk, visit, fail }: BotChatDependencies): BotChat {
  const suspending = suspension(fail);
  const stop = async (reading: AnswerReading) => {
    // When the answer is done, what runs may be of another tab.
    if (reading.stream.state !== 'done') await suspending.stop(talk);
    reading.leave();
  };
  const dependencies = { talk, visit, stop, suspending };
  return { ...sender(dependencies), join: joiner(dependencies) };
}

/** What `sender` and `joiner` need. */
interface Dependencies extends Omit<BotChatDependencies, 'fail'> {
  readonly stop: (reading: AnswerReading) => Promise<void>;
  readonly suspending: Suspension;
}

function sender({ talk, visit, stop, suspending }: Dependencies): Pick<BotChat, 'send' | 'isUnsent'> {
  let unsent: string | undefined;
  return {
    isUnsent: (messageId) => messageId === unsent,
    async send({ members, files, messageId, continues }, signal) {
      const own = visit();
      unsent = messageId;
      // A suspend that is under way would stop this message, too.
      await Promise.race([suspending.ended(), abortOf(signal)]);
      const blobs = await blobIdsOf(files, { talk, signal });
      signal?.throwIfAborted();
      // A message of one user must not be sent as that of another.
      if (own.ended.aborted) throw signedOut();
      const abort = new AbortController();
      const reading = readAnswer(talk.send({ ...members, ...blobs }, { signal: abort.signal }), abort);
      unsent = undefined;
      reading.first.catch((thrown) => {
        if (thrown instanceof RelayError && thrown.retryable) unsent = messageId;
      });
      signal?.addEventListener('abort', () => stop(reading), { once: true });
      return chunkStream(reading, { visit: own, continues, signal });
    },
  };
}

function joiner({ talk, visit, stop, suspending }: Dependencies): BotChat['join'] {
  let last: object | undefined;
  let search: ReturnType<typeof joinNewest> | undefined;
  return async (signal) => {
    const call = {};
    last = call;
    // The suspend stops what could be joined.
    if (suspending.ended()) return null;
    const own = visit();
    search ??= joinNewest(talk, () => {
      search = undefined;
    });
    const { found, leave } = search;
    let reading: AnswerReading | undefined;
    const onAbort = async () => {
      await undefined;
      // The AI SDK aborts a call when it makes the next one, as in StrictMode. Then the user has stopped nothing.
      const isStop = last === call;
      if (!reading) return isStop && leave();
      return isStop ? stop(reading) : reading.leave();
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    own.ended.addEventListener('abort', leave, { once: true });
    const unlessEnded = (thrown: unknown) => {
      if (thrown instanceof RelayError || !own.ended.aborted) throw thrown;
      return undefined;
    };
    const joined = await found
      .catch(unlessEnded)
      .finally(() => own.ended.removeEventListener('abort', leave));
    if (last !== call) return null;
    signal?.throwIfAborted();
    reading = joined;
    return joined ? chunkStream(joined, { visit: own, signal }) : null;
  };
}

/** A search for an answer that had not ended. */
interface Search {
  /** Undefined if the relay has none. */
  readonly found: Promise<AnswerReading | undefined>;
  /** Ends the search: `found` rejects. */
  readonly leave: () => void;
}

/** Asks the relay for the answers that had not ended, the newest first, until it has one. Then, `onEnd` is called. */
function joinNewest(talk: ConversationMessages, onEnd: () => void): Search {
  const abort = new AbortController();
  const { signal } = abort;
  let onAnswered: (stream: MessageStream) => void = () => {};
  const streams = talk.resume({
    signal,
    onState: (state, stream) => state === 'streaming' && onAnswered(stream),
  });
  async function search(): Promise<AnswerReading | undefined> {
    for (const stream of streams.reverse()) {
      // It is there if the relay answers: its first event may come much later.
      const answered = new Promise<boolean>((resolve) => {
        onAnswered = (one) => one === stream && resolve(true);
      });
      const reading = readAnswer(stream, abort);
      const isThere = reading.first.then(({ done }) => !done);
      if (await Promise.race([answered, isThere])) return reading;
    }
    return undefined;
  }
  const found = search();
  found.then(onEnd, onEnd);
  return { found, leave: () => abort.abort() };
}
