import type { BotConversation } from './bot-conversation.ts';
import { type ShownChannel, showAnswer } from './channel-answer.ts';
import { questionOf } from './channel-sends.ts';
import { type FollowedHistory, followHistory } from './follow-history.ts';
import type { RelayError } from './relay-error.ts';
import { type ResumedAnswers, resumedAnswers } from './resumed-answers.ts';

/** What was said before in a channel, and what is said in it elsewhere. */
export interface ChannelPast {
  /** Shows it. `isNew`: nothing was said there yet. */
  readonly begin: (talk: BotConversation, isNew: boolean) => void;
  readonly isRunning: () => boolean;
  /** Resolves when all of it is there that is shown before a message which is sent now. */
  readonly readyToSend: (signal: AbortSignal) => Promise<void> | undefined;
  /** Follows it no further. */
  readonly leave: () => void;
  /** Has the page keep the messages, if the bot service does not. */
  readonly save: () => void;
  /** Has the page forget them. */
  readonly clear: () => void;
}

/** Shows what was said before: as the bot service tells it, else what the page has kept. */
export function channelPast(shown: ShownChannel): ChannelPast {
  const { state, options } = shown;
  let history: FollowedHistory | undefined;
  let resumed: ResumedAnswers | undefined;
  let isKept = false;
  /** The conversation, whose messages the page has kept if the bot service has no history. */
  const withKept = ({ metadata, history: all }: BotConversation) => ({
    history: all,
    metadata: () =>
      metadata().catch(async (error: RelayError) => {
        if (options.history && error.code === 'operation_not_enabled') {
          for (const message of await options.history.load()) state.addPast(message);
          isKept = true;
        }
        throw error;
      }),
  });
  const onError = state.fail;
  return {
    begin(talk, isNew) {
      const onAnswer = () => showAnswer(shown, state.add, 'done');
      resumed = resumedAnswers(talk, { onAnswer, onError, history: () => history });
      state.change({ isLoading: !isNew });
      if (isNew && !options.history) return;
      const its = followHistory(withKept(talk), {
        onQuestion: (text, blobIds) => state.addPast(questionOf(text, blobIds.map(fileOf))),
        onAnswer: () => showAnswer(shown, state.addPast, 'done'),
        onError,
        resumed,
      });
      history = its;
      its.settled.then(() => its === history && state.change({ isLoading: false }));
    },
    isRunning: () => resumed?.isRunning() === true || history?.isRunning() === true,
    readyToSend: (signal) => history?.readyToSend(signal),
    leave() {
      resumed?.leave();
      history?.leave();
      resumed = history = undefined;
      isKept = false;
    },
    save: () => void (isKept && options.history?.save(state.messages()).catch(onError)),
    clear: () => void options.history?.clear().catch(onError),
  };
}

const fileOf = (blobId: string) =>
  ({ type: 'file', mediaType: 'application/octet-stream', url: '', blobId }) as const;
