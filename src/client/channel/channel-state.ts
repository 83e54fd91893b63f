import { asRelayError, callPage, isSignedOut, type RelayError } from '../transport/relay-error.ts';
import type { ChannelMessage, ChannelOptions, ChannelSnapshot } from './channel-types.ts';

type Messages = readonly ChannelMessage[];

/** What a channel shows now, and what it will show in the next frame. */
export interface ChannelState extends MessageList {
  readonly listeners: Set<() => void>;
  /** What is shown now. */
  readonly shown: () => ChannelSnapshot;
  /** What was shown before anything had come. */
  readonly first: ChannelSnapshot;
  /** Changes what the next frame shows. */
  readonly change: (changes: Partial<Omit<ChannelSnapshot, 'status'>>) => void;
  /** Shows what was thrown as `error`, and returns that. */
  readonly fail: (thrown: unknown) => RelayError;
}

/** The messages of a channel, as the next frame shows them. */
interface MessageList {
  readonly messages: () => Messages;
  readonly add: (message: ChannelMessage) => void;
  /** Adds an answer below the message with this id, if it is still there. */
  readonly addBelow: (id: string, answer: ChannelMessage) => void;
  /** Adds a message of the history, above those of `add`. The first one takes the place of the initial ones. */
  readonly addPast: (message: ChannelMessage) => void;
  /** Makes these the initial ones, and expects the history from its beginning again. */
  readonly setInitial: (messages: Messages) => void;
  /** Adds an answer that goes on after a reload: below the history, and above those that `add` has added. */
  readonly addResumed: (answer: ChannelMessage) => void;
  /** Replaces the message with the same id; does nothing if it was removed. */
  readonly replace: (message: ChannelMessage) => void;
  readonly removeAll: () => void;
}

/** A state that calls its listeners at most once a frame. */
export function channelState(options: ChannelOptions): ChannelState {
  const listeners = new Set<() => void>();
  const first: ChannelSnapshot = {
    status: 'ready',
    messages: [...(options.initialMessages ?? [])],
    error: undefined,
    session: undefined,
    isLoading: true,
  };
  let shown = first;
  let next = first;
  const draw = oncePerFrame(() => {
    shown = next = { ...next, status: statusOf(next) };
    for (const listener of [...listeners]) callPage(listener);
  });
  const change: ChannelState['change'] = (changes) => {
    next = { ...next, ...changes };
    draw();
  };
  return {
    listeners,
    first,
    shown: () => shown,
    change,
    fail(thrown) {
      const error = asRelayError(thrown);
      change({ error });
      callPage(() => options.onError?.(error));
      return error;
    },
    ...messageList({
      first: first.messages,
      all: () => next.messages,
      isShown: () => next.messages === shown.messages,
      set: (messages) => change({ messages }),
    }),
  };
}

interface MessageListDependencies {
  /** The messages at first. */
  readonly first: Messages;
  readonly all: () => Messages;
  /** Whether the list `all` is shown already. */
  readonly isShown: () => boolean;
  readonly set: (messages: Messages) => void;
}

function messageList({ first, all, isShown, set }: MessageListDependencies): MessageList {
  let initial = idsOf(first);
  /**
   * Used while a history comes a second time: in order, the messages that the history lacks, and for each question of the
   * history its `startOf`.
   */
  let before: unknown[] = [];
  /** How many messages at the beginning of the list are of the history, and how many after them are resumed answers. */
  let past = 0;
  let resumed = 0;
  const insert = (list: Messages, at: number, message: ChannelMessage) =>
    set([...list.slice(0, at), message, ...list.slice(at)]);
  const placeOf = (id: string) => all().findIndex((one) => one.id === id);
  return {
    messages: all,
    add: (message) => set([...all(), message]),
    addBelow(id, answer) {
      const at = placeOf(id);
      if (at >= 0) insert(all(), at + 1, answer);
    },
    addPast(message) {
      const others = past > 0 ? all() : all().filter(({ id }) => !initial.has(id));
      // A message that the history lacks stays above the question that came after it. A question can be asked twice.
      const above = before.splice(0, before.indexOf(startOf(message)) + 1);
      while (above.includes(others[past])) past++;
      insert(others, past++, message);
    },
    setInitial(messages) {
      initial = idsOf(messages);
      before = all().map((one) => (initial.has(one.id) ? one.role === 'user' && startOf(one) : one));
      past = resumed = 0;
    },
    addResumed(answer) {
      const above = past > 0 ? 0 : all().filter(({ id }) => initial.has(id)).length;
      insert(all(), above + past + resumed++, answer);
    },
    replace(message) {
      const at = placeOf(message.id);
      if (at < 0) return;
      // The list is copied once a frame, not for each event: nobody else has a list that is not shown yet.
      const list = (isShown() ? [...all()] : all()) as ChannelMessage[];
      list[at] = message;
      set(list);
    },
    removeAll() {
      past = resumed = 0;
      before = [];
      set([]);
    },
  };
}

/** The first part of a message, as a text to compare. It is the same in a history. */
const startOf = ({ parts }: ChannelMessage) => JSON.stringify([parts[0]]);

const idsOf = (messages: Messages) => new Set(messages.map(({ id }) => id));

/** Whether an answer in this state has ended. */
export function isOver(state: ChannelMessage['state']): boolean {
  return state === 'done' || state === 'stopped' || state === 'error';
}

/** Of these messages, those that a history takes the place of. It will never have the others. */
export const replaceable = (all: readonly ChannelMessage[]) =>
  all.filter((one, at) => ![one, all[at + 1]].some(isRefused));

/** Whether a message was refused before the bot could run. */
const isRefused = ({ error }: Partial<ChannelMessage> = {}) =>
  error && !error.maybeStarted && (error.retryable !== undefined || isSignedOut(error));

/**
 * The text of a message. If it has several texts, they are paragraphs.
 * @param message A message of a channel.
 */
export function textOf({ parts }: Pick<ChannelMessage, 'parts'>): string {
  return parts.flatMap((part) => (part.type === 'text' && part.text !== '' ? [part.text] : [])).join('\n\n');
}

function statusOf({ messages, error }: ChannelSnapshot): ChannelSnapshot['status'] {
  const states = new Set(messages.map(({ state }) => state));
  const running = (['streaming', 'reconnecting', 'submitted'] as const).find((state) => states.has(state));
  return running ?? (error ? 'error' : 'ready');
}

/** The longest wait for a frame, in ms: hidden pages have no frames, and their timers fire at most once a second. */
const LONGEST_FRAME_MS = 1000;

/** Undefined outside of browsers, where a timer is used. */
declare const requestAnimationFrame: ((act: () => void) => number) | undefined;
declare const cancelAnimationFrame: (frame: number) => void;

/** Makes a function that calls `act` in the next frame. Several calls before that frame cause one call of `act`. */
export function oncePerFrame(act: () => void): () => void {
  let isScheduled = false;
  return () => {
    if (isScheduled) return;
    isScheduled = true;
    const hasFrames = typeof requestAnimationFrame === 'function';
    const run = () => {
      // Only one of the two may fire.
      clearTimeout(timer);
      if (frame !== undefined) cancelAnimationFrame(frame);
      isScheduled = false;
      act();
    };
    const timer = setTimeout(run, hasFrames ? LONGEST_FRAME_MS : 0);
    const frame = hasFrames ? requestAnimationFrame(run) : undefined;
  };
}
