import type { MessageStream, SendOptions } from '../transport/message-stream.ts';
import { abortOf } from '../transport/waits.ts';
import type { BotConversation } from './bot-conversation.ts';
import { type ShownAnswer, type ShownChannel, showAnswer } from './channel-answer.ts';
import { isOver } from './channel-state.ts';
import type { ChannelMessage } from './channel-types.ts';

/** Sends what begins a run. */
export type Begin = (talk: BotConversation, options: SendOptions) => MessageStream;

/** Resolves with the conversation when something may be sent. @throws RelayError if nothing can be sent */
export type Ready = (signal: AbortSignal) => Promise<BotConversation>;

/** The runs that this page begins in a channel. */
export interface ChannelRuns {
  readonly isRunning: () => boolean;
  /** Begins a run, and resolves with its answer when that has ended. The answer is shown below the message `question`. */
  readonly run: (begin: Begin, question?: string) => Promise<ChannelMessage>;
  /** Shows all answers as stopped, and drops messages that wait. The returned function reads the answers no further. */
  readonly stop: () => () => void;
  /** Reads the answers no further. Their runs go on. */
  readonly leave: () => void;
}

/** Begins runs, and shows their answers. */
export function channelRuns(shown: ShownChannel, ready: Ready): ChannelRuns {
  const running = new Map<AbortController, ShownAnswer>();
  const waiting = new Set<AbortController>();
  const stop = () => {
    const stopped = [...running];
    for (const [controller, answer] of stopped) {
      if (waiting.has(controller)) controller.abort();
      answer.onState('stopped');
    }
    return () => {
      for (const [controller] of stopped) controller.abort();
    };
  };
  return {
    isRunning: () => [...running.values()].some((answer) => !isOver(answer.now().state)),
    stop,
    leave: () => stop()(),
    async run(begin, question) {
      const controller = new AbortController();
      const { signal } = controller;
      const { state } = shown;
      const show = (one: ChannelMessage) => (question ? state.addBelow(question, one) : state.add(one));
      const answer = showAnswer(shown, show, 'submitted');
      state.change({ error: undefined });
      running.set(controller, answer);
      waiting.add(controller);
      let stream: MessageStream | undefined;
      const onState: SendOptions['onState'] = (state, { requestId }) => {
        answer.note(requestId);
        if (state !== 'done') answer.onState(state);
      };
      try {
        const talk = await Promise.race([ready(signal), abortOf(signal)]);
        waiting.delete(controller);
        stream = begin(talk, { signal, onState });
        for await (const event of stream) answer.onEvent(event);
        answer.onState('done');
      } catch (thrown) {
        answer.note(stream?.requestId);
        answer.onError(thrown);
      } finally {
        running.delete(controller);
        waiting.delete(controller);
      }
      return answer.now();
    },
  };
}
