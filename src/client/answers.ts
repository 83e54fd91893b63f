import { answerText, type Read } from './answer-text.ts';
import { asRelayError } from './as-relay-error.ts';
import type { BotClient, BotEvent } from './bot-client.ts';
import type { ChatMessage, ChatState } from './chat-state.ts';

/** The messages of a conversation. */
export function answering(client: BotClient, state: ChatState, read: Read) {
  const running = new Set<AbortController>();
  let isOver = false;
  let lastId = 0;
  function stop(): void {
    for (const abort of running) abort.abort();
  }
  async function send(text: string): Promise<void> {
    if (isOver) return;
    const abort = new AbortController();
    running.add(abort);
    let answer: ChatMessage = { id: lastId + 2, from: 'bot', text: '', state: 'waiting' };
    state.add({ id: lastId + 1, from: 'user', text, state: 'done' }, answer);
    state.change({ error: undefined });
    lastId += 2;
    const change = (changes: Partial<ChatMessage>) => {
      answer = { ...answer, ...changes };
      state.replace(answer);
    };
    const stream = client.send(text, {
      signal: abort.signal,
      onState: (now) => now !== 'done' && change({ state: now, requestId: stream.requestId }),
    });
    try {
      for await (const text of textsOf(stream, read)) change({ text });
      change({ state: 'done' });
    } catch (thrown) {
      if (abort.signal.aborted) return change({ state: 'stopped' });
      const error = asRelayError(thrown, stream.requestId);
      change({ state: 'failed', error, requestId: error.requestId });
      state.change({ error });
    } finally {
      running.delete(abort);
    }
  }
  return {
    send,
    stop,
    begin() {
      isOver = false;
    },
    end() {
      isOver = true;
      stop();
    },
  };
}

/** The text of an answer, whenever something was added to it. */
async function* textsOf(stream: AsyncIterable<BotEvent>, read: Read): AsyncGenerator<string> {
  const textAfter = answerText();
  for await (const event of stream) {
    const said = read(event);
    if (said) yield textAfter(said);
  }
}
