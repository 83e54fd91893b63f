import type { BotEvent } from '../transport/bot-event.ts';
import { randomId } from '../transport/calls.ts';
import { timeOf } from '../transport/known-events.ts';
import { asRelayError, callPage } from '../transport/relay-error.ts';
import { answerParts } from './answer-parts.ts';
import type { ToolCallConsent } from './bot-conversation.ts';
import { type ChannelState, isOver } from './channel-state.ts';
import type { ChannelMessage, ChannelOptions, MessageMetadata } from './channel-types.ts';
import type { AnswerView } from './follow-history.ts';

/** What a channel shows, and what shows it. */
export interface ShownChannel {
  readonly state: ChannelState;
  readonly options: ChannelOptions;
  /** The tool calls that wait for the user, by their ids. */
  readonly pending: Map<string, PendingConsent>;
  /** Called with each answer that has ended. */
  readonly onEnd: (answer: ChannelMessage) => void;
}

interface PendingConsent {
  /** The answer that asks. */
  readonly answer: ShownAnswer;
  /** What the user has decided. */
  result?: ToolCallConsent['result'];
}

/** An answer that a channel shows. What comes after a stop or a failure is not shown. */
export interface ShownAnswer extends AnswerView {
  readonly now: () => ChannelMessage;
  /** Notes the id of the request in the relay's log, if there is one. */
  readonly note: (requestId?: string) => void;
  /** Shows what the user has decided about a tool call. With undefined, it waits for the user. */
  readonly decide: (toolCallId: string, approved: boolean | undefined) => void;
}

/** Shows an answer, which `add` puts in its place. `first` is its first state: `done` for an answer of the history. */
export function showAnswer(
  { state, options, pending, onEnd }: ShownChannel,
  add: (message: ChannelMessage) => void,
  first: 'submitted' | 'done',
): ShownAnswer {
  let now = newAnswer(first);
  const { take, decide } = answerParts();
  const change = (changes: Partial<ChannelMessage>, metadata?: MessageMetadata) => {
    const before = now.state;
    now = { ...now, ...changes, metadata: { ...now.metadata, ...metadata } };
    state.replace(now);
    // An answer of the history that is `done` was stopped before.
    const isPast = before === 'done' && changes.state === 'stopped';
    if (changes.state && isOver(changes.state) && !isPast) onEnd(now);
  };
  /** An answer of the history that is `done` may still be under way. */
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
      if (parts) change({ parts }, metadataOf(event, now, messageId));
      for (const id of asks) pending.set(id, { answer });
      if (isStopped(event)) change({ state: 'stopped' });
    },
    onVerdict: (verdict) => change({}, { verdict }),
    onState: (next) => isEnded() || change({ state: next === 'waiting' ? 'reconnecting' : next }),
    onError(thrown) {
      if (isEnded()) return;
      const error = asRelayError(thrown, now.metadata.requestId);
      note(error.requestId);
      // It was stopped before it was sent.
      if (error.code === 'stopped') return change({ state: 'stopped' });
      change({ state: 'error', error });
      state.fail(error);
    },
  };
  add(now);
  return answer;
}

/** Whether this event ends a text that the user has stopped. */
function isStopped(event: BotEvent): boolean {
  return event.known && event.eventType === 'asgard.message.complete'
    ? event.fact.messageComplete.message.isStopped === true
    : false;
}

/** What an event of an answer says of it. The first time stays. */
export function metadataOf(
  event: BotEvent,
  { metadata }: ChannelMessage,
  messageId: string | undefined,
): MessageMetadata {
  const createdAt = metadata.createdAt ?? timeOf(event);
  return { ...(messageId && { messageId }), ...(createdAt && { createdAt }) };
}

/** An answer of which nothing is known yet; one of the history is `done`. */
export function newAnswer(state: 'submitted' | 'done'): ChannelMessage {
  const metadata = state === 'done' ? {} : { createdAt: Date.now() };
  return { id: randomId(), role: 'assistant', parts: [], state, metadata };
}
