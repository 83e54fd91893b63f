import type { BotEvent } from '../transport/bot-event.ts';
import { RelayError } from '../transport/relay-error.ts';
import { abortOf, after, inBackground } from '../transport/waits.ts';
import type { BotConversation } from './bot-conversation.ts';

/**
 * How long nothing may come before what was said so far counts as complete, in ms. The stream of a bot service goes on
 * with what is said now, and nothing in it says where that begins.
 */
const QUIET_MS = 500;
/** The longest wait until what was said so far counts as complete, in ms. */
const LONGEST_WAIT_MS = 5_000;
/** How long it waits until resumed answers have begun, in ms: which runs they show is known only then. */
const LONGEST_RESUME_MS = 2_000;

/** Where a page shows what was said before. */
export interface HistoryView {
  /** The user has said this, or has sent these files. */
  readonly onQuestion: (text: string, blobIds: readonly string[]) => void;
  /** The bot has answered, or answers. */
  readonly onAnswer: () => AnswerView;
  /** What was said cannot be shown or, if `isWhole`, all of it is shown and cannot be followed further. */
  readonly onError: (error: unknown, isWhole: boolean) => void;
  /** Answers that the page shows in another way: their runs are left out. */
  readonly resumed?: ShownElsewhere | undefined;
}

/** Runs that a page shows in another way. */
export interface ShownElsewhere {
  /** Resolves when it is known which they are; undefined if there are none. */
  readonly begun: Promise<unknown> | undefined;
  readonly shows: (run: unknown) => boolean;
}

/** One answer of the bot. It is complete until `onState` says something else. */
export interface AnswerView {
  readonly onEvent: (event: BotEvent) => void;
  readonly onState: (state: 'waiting' | 'streaming' | 'done' | 'stopped') => void;
  /** The answer is incomplete. */
  readonly onError: (error: unknown) => void;
}

/** A history that is being followed. */
export interface FollowedHistory {
  /** Whether a run is under way that was begun before. */
  readonly isRunning: () => boolean;
  /** Whether it shows this run. */
  readonly shows: (run: unknown) => boolean;
  /** Resolves when everything that was said is shown, or nothing has come for a while. */
  readonly settled: Promise<void>;
  /**
   * Waits until it is `settled`; rejects when `signal` is aborted. When it is settled, only the runs that are under way are
   * followed further: what a page sends itself would be shown twice.
   */
  readonly readyToSend: (signal: AbortSignal) => Promise<void>;
  /** Shows answers that are under way as `stopped`, before their runs end. */
  readonly showStopped: () => void;
  /** Follows nothing any more. Answers that are under way are `stopped`; their runs go on. */
  readonly leave: () => void;
}

type Followed = Pick<BotConversation, 'metadata' | 'history'>;

/** Shows what was said in a conversation, and what its runs say, until the bot service ends it or the page leaves. */
export function followHistory(conversation: Followed, view: HistoryView): FollowedHistory {
  const abort = new AbortController();
  const shown = shownRuns(view);
  const { settled, wait, isQuiet } = quietness(LONGEST_WAIT_MS);
  let isFinishing = false;
  /** A run that is under way has said something. */
  let isLive = false;
  async function follow(): Promise<void> {
    if (view.resumed?.begun) {
      await Promise.race([view.resumed.begun, abortOf(abort.signal), after(LONGEST_RESUME_MS)]);
    }
    // Asked first, so that no live stream is opened for a new conversation.
    if (!(await conversation.metadata())) return;
    for await (const event of conversation.history({ signal: abort.signal })) {
      if (abort.signal.aborted) return;
      // What is said now may go on for minutes, so only its first event counts.
      if (event.id !== undefined || !isLive) wait(QUIET_MS);
      isLive ||= event.id === undefined;
      shown.take(event, isFinishing);
      if (isFinishing && !shown.isRunning()) return;
    }
  }
  const followed = follow().then(
    () => shown.end(),
    (error) => {
      if (abort.signal.aborted || isNothingThere(error)) return;
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

/** The runs of a history. */
function shownRuns({ onQuestion, onAnswer, resumed }: HistoryView) {
  const answers = new Map<unknown, AnswerView>();
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
      if (eventType === 'asgard.message.feedback' || (isFinishing && !running.has(run))) return;
      if (eventType === 'asgard.message.user') {
        const { text, blobIds } = (event.known && event.fact.messageUser) || {};
        // Where runs have no ids, an answer ends with the next question.
        answers.delete(undefined);
        onQuestion(text ?? '', blobIds ?? []);
        return;
      }
      if (eventType === 'asgard.run.done') return void end(run);
      if (resumed?.shows(run)) return;
      const answer = answers.get(run) ?? (isOfAnswer(event) && onAnswer());
      if (!answer) return;
      answers.set(run, answer);
      // Only what is kept has an id; all else is said now.
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

/** Whether a refusal means that the group `chat` is off, so that nothing is there. */
export function isNothingThere(error: unknown): boolean {
  return error instanceof RelayError && error.code === 'operation_not_enabled';
}

/** Whether an event belongs to an answer for sure. */
function isOfAnswer({ known, eventType }: BotEvent): boolean {
  return known || eventType === 'asgard.run.error';
}

interface Quietness {
  /** Resolves when the time of the last `wait`, in ms, has passed, or the longest time. */
  readonly settled: Promise<void>;
  readonly wait: (ms: number) => void;
  /** Whether the time of a `wait` has passed. */
  readonly isQuiet: () => boolean;
}

/** Waits for `longest` ms after this call at the latest. */
function quietness(longest: number): Quietness {
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
