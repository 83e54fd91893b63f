import type { BotEvent, KnownEvent } from '../transport/bot-event.ts';
import {
  callIdOf,
  knownMember,
  readText,
  type Text,
  type Tool,
  type ToolFacts,
} from '../transport/known-events.ts';
import type { AnswerChunk } from './chat-types.ts';

/** Makes the chunks of one answer. */
export interface AnswerChunks {
  /** The chunks of an event. @throws RelayError if the run has failed */
  readonly take: (event: BotEvent) => AnswerChunk[];
  /** The chunks with which a whole answer ends. */
  readonly end: () => AnswerChunk[];
}

/** A text of the answer: what it is `now`, and what of it is `shown` by the chunks so far. */
interface TextShown {
  readonly id: string;
  now: string;
  shown: string;
  isOver: boolean;
}

/** Makes the chunks of one answer from its events. */
export function answerChunks(): AnswerChunks {
  const texts = new Map<string, TextShown>();
  /** The parts of the answer, in order: a text, or the chunks of something else. */
  const parts = new Map<string, TextShown | AnswerChunk[]>();
  let messageId: string | undefined;
  function takeText({ add, text, part: id = '' }: Text, isOver: boolean): AnswerChunk[] {
    const one = texts.get(id) ?? { id, now: '', shown: '', isOver: false };
    texts.set(id, one);
    parts.set(`text ${id}`, one);
    const isNext = add !== undefined && one.now === one.shown;
    one.now = text ?? one.now + add;
    if (isNext || one.now.startsWith(one.shown)) {
      const rest = isNext ? add : one.now.slice(one.shown.length);
      if (!one.isOver || rest === '') return goOn(one, rest, isOver);
    } else if (!isOver && one.shown.startsWith(one.now)) {
      // The text comes again from its start, as after a resumption.
      return [];
    }
    one.isOver ||= isOver;
    // The text has changed, and a chunk can only append to it: all of this answer is shown again.
    const anew = [...parts.values()].flatMap((part) => (Array.isArray(part) ? part : showAnew(part)));
    return [{ type: 'reset-step' }, ...anew];
  }
  return {
    take(event) {
      const said = readText(event);
      messageId = said?.part ?? messageId;
      if (said) return takeText(said, event.eventType === 'asgard.message.complete');
      const others = event.known ? othersIn(event, `data ${parts.size}`) : [];
      return others.flatMap(([key, ...chunks]) => {
        const before = parts.get(key);
        parts.set(key, chunks);
        return chunks.slice(Array.isArray(before) ? before.length : 0);
      });
    },
    end: () => [
      ...[...texts.values()].flatMap((text) => goOn(text, '', true)),
      { type: 'finish-step' },
      { type: 'finish', messageMetadata: messageId === undefined ? {} : { messageId } },
    ],
  };
}

/** The chunks for the `rest` of a text, and for its end if it is over. */
function goOn(text: TextShown, rest: string, isOver: boolean): AnswerChunk[] {
  const { id } = text;
  const chunks: AnswerChunk[] = [];
  if (rest && !text.shown) chunks.push({ type: 'text-start', id });
  if (rest) chunks.push({ type: 'text-delta', id, delta: rest });
  // The same string, not a copy of it: to compare two copies of a long text for each piece would take long.
  if (rest) text.shown = text.now;
  if (isOver && !text.isOver && text.shown) chunks.push({ type: 'text-end', id });
  text.isOver ||= isOver;
  return chunks;
}

/** The chunks that show a text from its start again. */
function showAnew(text: TextShown): AnswerChunk[] {
  const { now, isOver } = text;
  Object.assign(text, { shown: '', isOver: false });
  return goOn(text, now, isOver);
}

/** A part that is no text: its key, and its chunks. */
type Part = [key: string, ...chunks: AnswerChunk[]];

/** What else an event shows. The chunks of a part begin with those that an earlier event has given for it. */
function othersIn(event: KnownEvent, newKey: string): Part[] {
  if (!event.eventType.startsWith('asgard.'))
    return [[newKey, { type: `data-${event.eventType}`, data: event.fact }]];
  const { toolCallConsent, toolCallStart, toolCallComplete } = knownMember<ToolFacts>(event);
  const called = toolCallStart ?? toolCallComplete;
  if (!called)
    return (toolCallConsent?.pendingCalls ?? []).map((call) => {
      const { toolCallId } = call;
      const ask = { type: 'tool-approval-request', toolCallId, approvalId: toolCallId } as const;
      return [toolCallId, callOf(toolCallId, call), ask];
    });
  const toolCallId = callIdOf(called);
  const part: Part = [toolCallId, callOf(toolCallId, called.toolCall)];
  if (!toolCallComplete) return [part];
  const output = toolCallComplete.toolCallResult ?? null;
  return [[...part, { type: 'tool-output-available', toolCallId, output }]];
}

function callOf(toolCallId: string, { toolName, parameter: input }: Tool): AnswerChunk {
  return { type: 'tool-input-available', toolCallId, toolName, input, dynamic: true, providerExecuted: true };
}
