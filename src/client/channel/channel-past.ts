import { asRelayError, isSignedOut, type RelayError } from '../transport/relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import { type ShownChannel, showAnswer } from './channel-answer.ts';
import { questionOf } from './channel-sends.ts';
import { isOver, replaceable } from './channel-state.ts';
import type { ChannelMessage, FilePart } from './channel-types.ts';
import { type FollowedHistory, followHistory, type PastQuestion } from './follow-history.ts';
import { type OtherTabs, otherTabs } from './other-tabs.ts';
import { type Opened, pageStorage } from './page-storage.ts';
import { type ResumedAnswers, resumedAnswers } from './resumed-answers.ts';

/** What a channel shows besides the runs of this page: its history, and answers that go on after a reload. */
export interface ChannelPast {
  /** Begins to show what was said in this conversation. */
  readonly begin: (opened: Opened) => void;
  /** Takes the id of a message that another tab has sent. */
  readonly onTold: (messageId: string) => void;
  /** Takes whether the user is signed in. If so, a history that the end of a session has broken is loaded again. */
  readonly onSession: (isSignedIn: boolean) => void;
  /** Whether an answer of it is under way. */
  readonly isRunning: () => boolean;
  /** Resolves when the history is shown above which a message would be sent now. */
  readonly readyToSend: (signal: AbortSignal) => Promise<void> | undefined;
  /** Shows answers that are under way as stopped. */
  readonly showStopped: () => void;
  /** Follows the conversation no further. */
  readonly leave: () => void;
  /** The same, and nothing of the conversation is kept or shown any more. */
  readonly close: () => void;
  /** Has the page keep the messages, if the bot service gives no history. */
  readonly save: () => void;
  /** Has the page forget the messages, and closes. Returns what was open. */
  readonly forget: () => Opened | undefined;
}

/** A history that is being loaded. */
interface Loading {
  /** Whether it is still the one that is shown. */
  readonly isOpen: () => boolean;
  readonly load: () => void;
  /** The messages before it. */
  readonly past: readonly ChannelMessage[];
  /** Takes, in place of the page, a failure that comes before anything of the history does. */
  readonly onNothing?: OtherTabs['onFailed'] | undefined;
}

/** Shows why a history could not be loaded, and loads it again, also when the user has signed in again. */
function failures({ change, fail, messages, setInitial }: ShownChannel['state']) {
  let isSignedIn = true;
  let signedInAgain = () => {};
  function onSession(isThere: boolean): void {
    isSignedIn = isThere;
    if (isThere) signedInAgain();
  }
  return {
    onSession,
    onError(error: RelayError, isWhole: boolean, { isOpen, load, past, onNothing }: Loading): void {
      function loadAgain(): void {
        const all = messages();
        if (!isOpen() || !all.every((one) => isOver(one.state))) return;
        setInitial(replaceable(all));
        change({ error: undefined });
        load();
      }
      if (!isSignedOut(error)) {
        if (onNothing && past === messages()) return void onNothing(error);
        if (!isWhole) change({ failedHistory: { error, loadAgain } });
        fail(error);
        return;
      }
      signedInAgain = loadAgain;
      // The same user may have signed in again already.
      if (isSignedIn) loadAgain();
    },
  };
}

/** Shows what was said before: the history of the bot service, else the messages that the page has kept. */
export function channelPast(shown: ShownChannel): ChannelPast {
  const { state, options } = shown;
  let history: FollowedHistory | undefined;
  let resumed: ResumedAnswers | undefined;
  let opened: Opened | undefined;
  const storage = pageStorage(shown, () => opened);
  const { onSession, onError } = failures(state);
  const others = otherTabs(state, () => {
    if (!opened || storage.hasNoHistory()) return;
    // All that is shown stays until the history takes its place.
    state.setInitial(replaceable(state.messages()));
    leave();
    follow({ ...opened, isNew: false }, others.onFailed);
  });
  function leave(): void {
    resumed?.leave();
    history?.leave();
    resumed = history = undefined;
  }
  function close(): void {
    leave();
    opened = undefined;
    others.leave();
    storage.close();
  }
  function begin(next: Opened): void {
    leave();
    resumed = resumedAnswers(next.talk, { ...resumedView(shown), history: () => history });
    state.change({ isLoading: !next.isNew, failedHistory: undefined });
    follow(next);
  }
  function follow(next: Opened, onNothing?: Loading['onNothing']): void {
    opened = next;
    const before = { past: state.messages(), onNothing };
    const loading = { isOpen: () => own === history, load: () => begin(next), ...before };
    if (next.isNew && !options.messages) return;
    const own = followHistory(storage.withKept(next), {
      ...pastView(shown, next),
      onError: (thrown, isWhole) => onError(asRelayError(thrown), isWhole, loading),
      resumed,
    });
    history = own;
    own.settled.then(() => own === history && state.change({ isLoading: false }));
  }
  return {
    isRunning: () => Boolean(resumed?.isRunning() || history?.isRunning()),
    readyToSend: (signal) => history?.readyToSend(signal),
    showStopped() {
      resumed?.showStopped();
      history?.showStopped();
    },
    ...{ begin, onSession, leave, close, onTold: others.onTold },
    save: storage.save,
    forget() {
      const before = opened;
      close();
      if (before) void storage.clear(before);
      return before;
    },
  };
}

/** Where answers are shown that go on after a reload. */
const resumedView = (shown: ShownChannel) => ({
  onAnswer: () => showAnswer(shown, shown.state.addResumed, 'done'),
  onError: shown.state.fail,
});

/** Where a history shows what was said. */
const pastView = (shown: ShownChannel, { talk }: Opened) => ({
  onQuestion: (question: PastQuestion) => shown.state.addPast(pastQuestion(talk, question)),
  onAnswer: () => showAnswer(shown, shown.state.addPast, 'done'),
});

/** What the user has said in `talk` before. */
export function pastQuestion(
  { downloadUrl }: Pick<BotConversation, 'downloadUrl'>,
  { text, files, createdAt }: PastQuestion,
): ChannelMessage {
  const parts = files.map(({ blobId, fileName, mime }): FilePart => {
    const named = fileName === undefined ? { url: '' } : { filename: fileName, url: downloadUrl(fileName) };
    return { type: 'file', mediaType: mime ?? 'application/octet-stream', ...named, blobId };
  });
  return { ...questionOf(text, parts), metadata: createdAt === undefined ? {} : { createdAt } };
}
