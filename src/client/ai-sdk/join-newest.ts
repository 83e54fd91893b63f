import type { ConversationMessages } from '../channel/conversation-messages.ts';
import type { MessageStream } from '../transport/message-stream.ts';
import { type AnswerReading, readAnswer } from './answer-reading.ts';

/** A search for an answer that had not ended. */
export interface Search {
  /** Undefined if the relay has none. */
  readonly found: Promise<AnswerReading | undefined>;
  /** Ends the search, and then rejects. */
  readonly leave: () => void;
}

/** Asks the relay for the answers of a conversation that had not ended, the newest first, until it has one. */
export function joinNewest(talk: ConversationMessages, onEnd: () => void): Search {
  const abort = new AbortController();
  const { signal } = abort;
  let onAnswered: (stream: MessageStream) => void = () => {};
  const streams = talk.resume({ signal, onState: (state, its) => state === 'streaming' && onAnswered(its) });
  async function search(): Promise<AnswerReading | undefined> {
    for (const stream of streams.reverse()) {
      // Its first event may come much later.
      const answered = new Promise<boolean>((resolve) => {
        onAnswered = (its) => its === stream && resolve(true);
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
