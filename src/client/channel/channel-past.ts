import { asRelayError, isSignedOut, type RelayError } from '../transport/relay-error.ts';
import { type ShownChannel, showAnswer } from './channel-answer.ts';
import { questionOf } from './channel-sends.ts';
import { isOver } from './channel-state.ts';
import type { ChannelMessage } from './channel-types.ts';
import { type FollowedHistory, followHistory } from './follow-history.ts';
import { type Opened, pageStorage } from './page-storage.ts';
import { type ResumedAnswers, resumedAnswers } from './resumed-answers.ts';

/** What was said before in a channel, and what is said in it elsewhere. */
export interface ChannelPast {
  readonly begin: (its: Opened) => void;
  /** Takes whether its user is signed in: then, what the end of a session has broken begins again. */
  readonly onSession: (isSignedIn: boolean) => void;
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

interface Loading {
  /** Whether the conversation is still the one that could not be loaded. */
  readonly isOpen: () => boolean;
  readonly load: () => void;
}

/** Shows why a history could not be loaded, and loads it again. */
function failures({ change, fail, messages, setInitial }: ShownChannel['state']) {
  let isSignedIn = true;
  let signedInAgain = () => {};
  function onSession(isThere: boolean): void {
    isSignedIn = isThere;
    if (isThere) signedInAgain();
  }
  return {
    onSession,
    onError(error: RelayError, isWhole: boolean, { isOpen, load }: Loading): void {
      function loadAgain(): void {
        const all = messages();
        if (!isOpen() || !all.every((one) => isOver(one.state))) return;
        // What is shown stays until there is something in its place; the bot service lacks what was refused.
        setInitial(all.filter((one, at) => ![one, all[at + 1]].some(isRefused)));
        change({ error: undefined });
        load();
      }
      if (!isSignedOut(error)) {
        if (!isWhole) change({ failedHistory: { error, loadAgain } });
        fail(error);
        return;
      }
      signedInAgain = loadAgain;
      // The same user may be back already, in another session.
      if (isSignedIn) loadAgain();
    },
  };
}

/** Whether a message was refused before the bot could run: the relay says of all others that they may have started. */
const isRefused = ({ error }: Partial<ChannelMessage> = {}) =>
  error && !error.maybeStarted && (error.retryable !== undefined || isSignedOut(error));

/** Shows what was said before: as the bot service tells it, else what the page has kept. */
export function channelPast(shown: ShownChannel): ChannelPast {
  const { state, options } = shown;
  let history: FollowedHistory | undefined;
  let resumed: ResumedAnswers | undefined;
  let opened: Opened | undefined;
  const storage = pageStorage(shown, () => opened);
  const { onSession, onError } = failures(state);
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
    leave();
    opened = its;
    const loading = { isOpen: () => own === history, load: () => begin(its) };
    const onAnswer = () => showAnswer(shown, state.addResumed, 'done');
    resumed = resumedAnswers(its.talk, { onAnswer, onError: state.fail, history: () => history });
    state.change({ isLoading: !its.isNew, failedHistory: undefined });
    if (its.isNew && !options.history) return;
    const own = followHistory(storage.withKept(its), {
      onQuestion: (text, blobIds) => state.addPast(questionOf(text, blobIds.map(fileOf))),
      onAnswer: () => showAnswer(shown, state.addPast, 'done'),
      onError: (thrown, isWhole) => onError(asRelayError(thrown), isWhole, loading),
      resumed,
    });
    history = own;
    own.settled.then(() => own === history && state.change({ isLoading: false }));
  }
  return {
    isRunning: () => [resumed, history].some((one) => one?.isRunning()),
    readyToSend: (signal) => history?.readyToSend(signal),
    showStopped: () => [resumed, history].forEach((one) => void one?.showStopped()),
    ...{ begin, onSession, leave, close },
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
