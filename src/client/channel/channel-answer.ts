import { randomId } from '../transport/calls.ts';
import { asRelayError, callPage } from '../transport/relay-error.ts';
import { answerParts } from './answer-parts.ts';
import type { ToolCallConsent } from './bot-conversation.ts';
import { type ChannelState, isOver } from './channel-state.ts';
import type { ChannelMessage, ChannelOptions, MessageMetadata } from './channel-types.ts';
import type { AnswerView } from './follow-history.ts';

/** A channel's state and its options. */
export interface ShownChannel {
  readonly state: ChannelState;
  readonly options: ChannelOptions;
  /** The tool calls that wait for the user, by their ids, each with its answer and what the user has decided. */
  readonly pending: Map<string, PendingConsent>;
  /** Called with each answer that has ended. */
  readonly onEnd: (answer: ChannelMessage) => void;
}

export interface PendingConsent {
  readonly answer: ShownAnswer;
  result?: ToolCallConsent['result'];
}

/** An answer that a channel shows. What comes after a stop or a failure is not shown. */
export interface ShownAnswer extends AnswerView {
  readonly now: () => ChannelMessage;
  /** Notes its id in the relay's log. */
  readonly note: (requestId?: string) => void;
  /** Shows what the user has decided about a tool call, or with undefined that it waits. */
  readonly decide: (toolCallId: string, approved: boolean | undefined) => void;
}

/** Adds an answer by `add`: one that is `submitted` now, or one of the past. */
export function showAnswer(
  { state, options, pending, onEnd }: ShownChannel,
  add: (message: ChannelMessage) => void,
  first: 'submitted' | 'done',
): ShownAnswer {
  let now = newAnswer(first);
  const { take, decide } = answerParts();
  const change = (changes: Partial<ChannelMessage>, metadata?: MessageMetadata) => {
    now = { ...now, ...changes, metadata: { ...now.metadata, ...metadata } };
    state.replace(now);
    if (changes.state && isOver(changes.state)) onEnd(now);
  };
  /** One of the past is `done`, and may be under way all the same. */
  const isEnded = () => now.state === 'stopped' || now.state === 'error';
  const note = (requestId?: string) => requestId && change({}, { requestId });
  const answer: ShownAnswer = {
    now: () => now,
    note,
    decide: (toolCallId, approved) => change({ parts: decide(toolCallId, approved) }),
    onEvent(event) {
      if (isEnded()) return;
      callPage(() => options.onEvent?.(event, now));
      const { parts, messageId, asks = [] } = take(event);
      if (parts) change({ parts }, messageId === undefined ? {} : { messageId });
      for (const id of asks) pending.set(id, { answer });
    },
    onState: (next) => isEnded() || change({ state: next === 'waiting' ? 'reconnecting' : next }),
    onError(thrown) {
      if (isEnded()) return;
      const error = asRelayError(thrown, now.metadata.requestId);
      note(error.requestId);
      // The bot service was told to stop before the message had left.
      if (error.code === 'stopped') return change({ state: 'stopped' });
      change({ state: 'error', error });
      state.fail(error);
    },
  };
  add(now);
  return answer;
}

function newAnswer(state: 'submitted' | 'done'): ChannelMessage {
  const metadata = state === 'done' ? {} : { createdAt: Date.now() };
  return { id: randomId(), role: 'assistant', parts: [], state, metadata };
}
