import { type ShownChannel, showAnswer } from './channel-answer.ts';
import { questionOf } from './channel-sends.ts';
import { type FollowedHistory, followHistory } from './follow-history.ts';
import { type Opened, pageStorage } from './page-storage.ts';
import { type ResumedAnswers, resumedAnswers } from './resumed-answers.ts';

/** What was said before in a channel, and what is said in it elsewhere. */
export interface ChannelPast {
  readonly begin: (its: Opened) => void;
  readonly isRunning: () => boolean;
  /** Resolves when all of it is there that is shown before a message which is sent now. */
  readonly readyToSend: (signal: AbortSignal) => Promise<void> | undefined;
  /** Shows answers that are under way as stopped. */
  readonly showStopped: () => void;
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
  const storage = pageStorage(shown, () => opened);
  const onError = state.fail;
  function leave(): void {
    resumed?.leave();
    history?.leave();
    resumed = history = undefined;
  }
  function close(): void {
    leave();
    opened = undefined;
    storage.close();
  }
  function begin(its: Opened): void {
    opened = its;
    const onAnswer = () => showAnswer(shown, state.addResumed, 'done');
    resumed = resumedAnswers(its.talk, { onAnswer, onError, history: () => history });
    state.change({ isLoading: !its.isNew });
    if (its.isNew && !options.history) return;
    const own = followHistory(storage.withKept(its), {
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
    showStopped: () => [resumed, history].forEach((one) => void one?.showStopped()),
    ...{ leave, close },
    save: storage.save,
    forget() {
      const its = opened;
      close();
      if (its) void storage.clear(its);
      return its;
    },
  };
}

const fileOf = (blobId: string) =>
  ({ type: 'file', mediaType: 'application/octet-stream', url: '', blobId }) as const;
