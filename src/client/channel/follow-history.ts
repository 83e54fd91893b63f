import type { BotEvent, Facts } from '../transport/bot-event.ts';
import { knownMember, timeOf } from '../transport/known-events.ts';
import { isNotEnabled } from '../transport/relay-error.ts';
import { abortOf, after, inBackground } from '../transport/waits.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { Verdict } from './channel-types.ts';

/**
 * After this time without an event, in ms, what was said so far counts as complete. The stream goes on with what is said
 * now, and nothing in it says where that begins.
 */
const QUIET_MS = 500;
/** The longest wait until what was said so far counts as complete, in ms. */
const LONGEST_WAIT_MS = 5_000;
/** How long it waits for resumed answers to begin, in ms: only then it is known which runs they show. */
const LONGEST_RESUME_MS = 2_000;

/** Where a page shows what was said before. */
export interface HistoryView {
  /** Shows what the user has said, and the files that they have sent. */
  readonly onQuestion: (question: PastQuestion) => void;
  /** Shows another answer. */
  readonly onAnswer: () => AnswerView;
  /** The history has failed: some of it is missing or, if `isWhole`, it is shown and cannot be followed further. */
  readonly onError: (error: unknown, isWhole: boolean) => void;
  /** Runs that are left out, since the page shows them in another way. */
  readonly resumed?: ShownElsewhere | undefined;
}

/** What the user has said before. */
export interface PastQuestion {
  readonly text: string;
  readonly files: readonly PastFile[];
  /** In ms since 1970, if the bot service says so. */
  readonly createdAt: number | undefined;
}

/** A file that the user has sent before. */
export interface PastFile {
  readonly blobId: string;
  readonly fileName?: string;
  readonly mime?: string | null | undefined;
}

/** Runs that a page shows in another way. */
export interface ShownElsewhere {
  /** Resolves when it is known which they are; undefined if there are none. */
  readonly begun: Promise<unknown> | undefined;
  readonly shows: (run: unknown) => boolean;
}

/** One answer of the bot. It counts as complete until `onState` says something else. */
export interface AnswerView {
  readonly onEvent: (event: BotEvent) => void;
  readonly onState: (state: 'waiting' | 'streaming' | 'done' | 'stopped') => void;
  /** What the user thinks of it. */
  readonly onVerdict: (verdict: Verdict) => void;
  /** The answer is incomplete. */
  readonly onError: (error: unknown) => void;
}

/** A history that is being followed. */
export interface FollowedHistory {
  /** Whether a run is under way that was begun before. */
  readonly isRunning: () => boolean;
  /** Whether it shows the run with this id. */
  readonly shows: (run: unknown) => boolean;
  /** Resolves when what was said so far is shown, or the longest wait is over. */
  readonly settled: Promise<void>;
  /**
   * Waits until it is `settled`; rejects when `signal` is aborted. After that, only the runs that are under way are followed
   * further: a message that the page sends itself would be shown twice.
   */
  readonly readyToSend: (signal: AbortSignal) => Promise<void>;
  /** Shows answers that are under way as `stopped`, before their runs end. */
  readonly showStopped: () => void;
  /** Follows it no further. Answers that are under way are `stopped`; their runs go on. */
  readonly leave: () => void;
}

type Followed = Pick<BotConversation, 'metadata' | 'history'>;

/** Shows what was said in a conversation, and what its runs say, until the bot service ends it or the page leaves. */
export function followHistory(conversation: Followed, view: HistoryView): FollowedHistory {
  const abort = new AbortController();
  const shown = shownRuns(view);
  const { settled, wait, isQuiet } = quietAfter(LONGEST_WAIT_MS);
  let isFinishing = false;
  /** Whether an event of what is said now has come. */
  let isLive = false;
  async function follow(): Promise<void> {
    if (view.resumed?.begun) {
      await Promise.race([view.resumed.begun, abortOf(abort.signal), after(LONGEST_RESUME_MS)]);
    }
    // Asked first: for a new conversation, no stream is opened.
    if (!(await conversation.metadata())) return;
    for await (const event of conversation.history({ signal: abort.signal })) {
      if (abort.signal.aborted) return;
      // Of what is said now, only the first event counts: it may go on for minutes.
      if (event.id !== undefined || !isLive) wait(QUIET_MS);
      isLive ||= event.id === undefined;
      shown.take(event, isFinishing);
      if (isFinishing && !shown.isRunning()) return;
    }
  }
  const followed = follow().then(
    () => shown.end(),
    (error) => {
      if (abort.signal.aborted || isNotEnabled(error)) return;
      shown.end(error);
      view.onError(error, isQuiet());
    },
  );
  followed.finally(() => wait(0));
  return {
    isRunning: shown.isRunning,
    shows: shown.shows,
    settled,
    async readyToSend(signal) {
      await Promise.race([settled, abortOf(signal)]);
      signal.throwIfAborted();
      isFinishing = true;
      if (!shown.isRunning()) abort.abort();
    },
    showStopped: shown.stop,
    leave() {
      abort.abort();
      shown.stop();
    },
  };
}

/** Shows the runs of a history. */
function shownRuns({ onQuestion, onAnswer, resumed }: HistoryView) {
  const answers = new Map<unknown, AnswerView>();
  /** The answers by the ids of their messages. */
  const ofMessage = new Map<string, AnswerView>();
  const running = new Set<unknown>();
  function end(run: unknown, error?: unknown): void {
    if (!running.delete(run)) return;
    const answer = answers.get(run);
    if (error === undefined) answer?.onState('done');
    else answer?.onError(error);
  }
  return {
    isRunning: () => running.size > 0,
    shows: (run: unknown) => answers.has(run),
    /** Takes an event. With `isFinishing`, nothing new begins. */
    take(event: BotEvent, isFinishing: boolean): void {
      const { eventType, runId: run } = event;
      const { messageUser, messageFeedback, messageComplete } = knownMember<KeptFacts>(event);
      if (eventType === 'asgard.message.feedback') {
        const { targetMessageId = '', verdict = '' } = messageFeedback ?? {};
        if (isVerdict(verdict)) ofMessage.get(targetMessageId)?.onVerdict(verdict);
        return;
      }
      if (isFinishing && !running.has(run)) return;
      if (eventType === 'asgard.message.user') {
        // Where runs have no ids, an answer ends with the next question.
        answers.delete(undefined);
        onQuestion(questionIn(messageUser, timeOf(event)));
        return;
      }
      if (eventType === 'asgard.run.done') return void end(run);
      if (resumed?.shows(run)) return;
      const answer = answers.get(run) ?? (isOfAnswer(event) && onAnswer());
      if (!answer) return;
      answers.set(run, answer);
      const { messageId } = messageComplete?.message ?? {};
      if (messageId) ofMessage.set(messageId, answer);
      // An event that the bot service keeps has an id. One without an id is said now.
      if (event.id === undefined && !running.has(run)) {
        running.add(run);
        answer.onState('streaming');
      }
      try {
        answer.onEvent(event);
        if (eventType === 'asgard.run.error') end(run);
      } catch (error) {
        end(run, error);
      }
    },
    end(error?: unknown): void {
      for (const run of running) end(run, error);
    },
    stop(): void {
      for (const run of running) answers.get(run)?.onState('stopped');
    },
  };
}

type KeptFacts = Facts['asgard.message.user'] &
  Facts['asgard.message.feedback'] &
  Facts['asgard.message.complete'];

function questionIn(
  { text, blobIds, blobs }: Partial<KeptFacts['messageUser']> = {},
  createdAt: number | undefined,
): PastQuestion {
  const fileOf = (blobId: string) => blobs?.find((one) => one.blobId === blobId) ?? { blobId };
  return { text: text ?? '', files: (blobIds ?? []).map(fileOf), createdAt };
}

const isVerdict = (verdict: string): verdict is Verdict => verdict === 'GOOD' || verdict === 'BAD';

/** Whether an event surely belongs to an answer. */
function isOfAnswer({ known, eventType }: BotEvent): boolean {
  return known || eventType === 'asgard.run.error';
}

interface Quiet {
  /** Resolves when the time of the last `wait` has passed, or the longest time. */
  readonly settled: Promise<void>;
  /** Waits for so many ms from now on, in place of the `wait` before. */
  readonly wait: (ms: number) => void;
  /** Whether the time of a `wait` has passed. */
  readonly isQuiet: () => boolean;
}

/** Finds out when no event has come for a while. `longest` is the longest time that it takes, in ms. */
function quietAfter(longest: number): Quiet {
  let isQuiet = false;
  let settle: () => void = () => {};
  const settled = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const last = inBackground(settle, longest);
  let quiet: ReturnType<typeof setTimeout> | undefined;
  settled.then(() => {
    clearTimeout(last);
    clearTimeout(quiet);
  });
  return {
    settled,
    isQuiet: () => isQuiet,
    wait(ms) {
      clearTimeout(quiet);
      quiet = setTimeout(() => {
        isQuiet = true;
        settle();
      }, ms);
    },
  };
}
