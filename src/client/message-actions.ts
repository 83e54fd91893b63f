import { answerText, type TextOf } from './answer-text.ts';
import { asRelayError } from './as-relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { BotEvent } from './bot-event.ts';
import type { ChatMessage, ChatState } from './chat-state.ts';

/** A conversation, and how a page shows it. */
export interface ShownConversation {
  /** The conversation of the current session. */
  readonly current: () => BotConversation;
  readonly state: ChatState;
  readonly textOf: TextOf;
}

/** Resolves when a message may be sent, or its signal is aborted; never rejects. */
export type Ready = (signal: AbortSignal) => Promise<void> | undefined;

/** The actions of a conversation that send messages. They are shown at once, and sent when they are `ready`. */
export function messageActions({ current, state, textOf }: ShownConversation, ready: Ready) {
  const running = new Set<AbortController>();
  async function send(text: string, blobIds: readonly string[] = []): Promise<void> {
    const controller = new AbortController();
    const { signal } = controller;
    running.add(controller);
    const question = questionOf(state.newId(), text, blobIds);
    let answer: ChatMessage = { id: state.newId(), from: 'bot', text: '', state: 'waiting' };
    state.add(question, answer);
    state.change({ error: undefined });
    const change = (changes: Partial<ChatMessage>) => {
      answer = { ...answer, ...changes };
      state.replace(answer);
    };
    await ready(signal);
    // With an aborted signal it sends nothing.
    const stream = current().send(blobIds.length > 0 ? { text, blobIds } : text, {
      signal,
      onState: (now) => now !== 'done' && change({ state: now, requestId: stream.requestId }),
    });
    try {
      for await (const text of textsOf(stream, textOf)) change({ text });
      change({ state: 'done' });
    } catch (thrown) {
      if (signal.aborted) return change({ state: 'stopped' });
      const error = asRelayError(thrown, stream.requestId);
      change({ state: 'failed', error, requestId: error.requestId });
      state.change({ error });
    } finally {
      running.delete(controller);
    }
  }
  return {
    send,
    isRunning: () => running.size > 0,
    /** Ends all answers; their runs go on. */
    abort() {
      for (const controller of running) controller.abort();
    },
  };
}

/** What the user has said, and the files that came with it. */
export function questionOf(id: number, text: string, blobIds: readonly string[]): ChatMessage {
  return { id, from: 'user', text, state: 'done', ...(blobIds.length > 0 && { blobIds }) };
}

/** The text of an answer so far, each time that it changes. */
async function* textsOf(stream: AsyncIterable<BotEvent>, textOf: TextOf): AsyncGenerator<string> {
  const textAfter = answerText();
  for await (const event of stream) {
    const said = textOf(event);
    if (said) yield textAfter(said);
  }
}
