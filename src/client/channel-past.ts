import type { BotConversation } from './bot-conversation.ts';
import { type ShownChannel, showAnswer } from './channel-answer.ts';
import { questionOf } from './channel-sends.ts';
import type { ChannelKey, ChannelMessage, ChannelStorage } from './channel-types.ts';
import { type FollowedHistory, followHistory } from './follow-history.ts';
import type { RelayError } from './relay-error.ts';
import { type ResumedAnswers, resumedAnswers } from './resumed-answers.ts';

/** A conversation that is open. */
export interface Opened {
  readonly talk: BotConversation;
  /** The id of the user. */
  readonly user: string;
  /** Nothing was said there yet. */
  readonly isNew: boolean;
}

/** What was said before in a channel, and what is said in it elsewhere. */
export interface ChannelPast {
  readonly begin: (its: Opened) => void;
  readonly isRunning: () => boolean;
  /** Resolves when all of it is there that is shown before a message which is sent now. */
  readonly readyToSend: (signal: AbortSignal) => Promise<void> | undefined;
  /** Follows it no further. */
  readonly leave: () => void;
  /** The same, and shows nothing of the conversation any more. */
  readonly close: () => void;
  /** Has the page keep the messages, if the bot service does not. */
  readonly save: () => void;
  /** Has the page forget them, and closes. Returns what was opened. */
  readonly forget: () => Opened | undefined;
}

/** Shows what was said before: as the bot service tells it, else what the page has kept. */
export function channelPast(shown: ShownChannel): ChannelPast {
  const { state, options } = shown;
  let history: FollowedHistory | undefined;
  let resumed: ResumedAnswers | undefined;
  let opened: Opened | undefined;
  let isKept = false;
  /** Calls a function of the page. Its failure is shown if the conversation is still there. */
  async function page(its: Opened, call: (storage: ChannelStorage) => Promise<void>): Promise<void> {
    try {
      if (options.history) await call(options.history);
    } catch (error) {
      if (its === opened) state.fail(error);
    }
  }
  const clear = (its: Opened) => page(its, (storage) => storage.clear(keyOf(its)));
  /** What the page has kept; nothing of a new conversation, whatever the page would load. */
  async function showKept(its: Opened): Promise<void> {
    let messages: readonly ChannelMessage[] | undefined;
    if (its.isNew) await clear(its);
    else messages = await options.history?.load(keyOf(its));
    // The user may have left meanwhile.
    if (its !== opened) return;
    for (const message of messages ?? []) state.addPast(message);
    isKept = true;
  }
  /** The conversation, whose messages the page has kept if the bot service has no history. */
  const withKept = (its: Opened) => ({
    history: its.talk.history,
    metadata: () =>
      its.talk.metadata().catch(async (error: RelayError) => {
        if (its === opened && error.code === 'operation_not_enabled') await showKept(its);
        throw error;
      }),
  });
  const onError = state.fail;
  function leave(): void {
    resumed?.leave();
    history?.leave();
    resumed = history = undefined;
  }
  function close(): void {
    leave();
    opened = undefined;
    isKept = false;
  }
  function begin(its: Opened): void {
    opened = its;
    const onAnswer = () => showAnswer(shown, state.add, 'done');
    resumed = resumedAnswers(its.talk, { onAnswer, onError, history: () => history });
    state.change({ isLoading: !its.isNew });
    if (its.isNew && !options.history) return;
    const own = followHistory(withKept(its), {
      onQuestion: (text, blobIds) => state.addPast(questionOf(text, blobIds.map(fileOf))),
      onAnswer: () => showAnswer(shown, state.addPast, 'done'),
      onError,
      resumed,
    });
    history = own;
    own.settled.then(() => own === history && state.change({ isLoading: false }));
  }
  return {
    begin,
    isRunning: () => resumed?.isRunning() === true || history?.isRunning() === true,
    readyToSend: (signal) => history?.readyToSend(signal),
    ...{ leave, close },
    save() {
      const its = opened;
      if (its && isKept) void page(its, (storage) => storage.save(state.messages(), keyOf(its)));
    },
    forget() {
      const its = opened;
      close();
      if (its) void clear(its);
      return its;
    },
  };
}

const keyOf = ({ user, talk }: Opened): ChannelKey => ({ user, channelId: talk.customChannelId });

const fileOf = (blobId: string) =>
  ({ type: 'file', mediaType: 'application/octet-stream', url: '', blobId }) as const;
