import type { BotEvent } from '../transport/bot-event.ts';
import { callIdOf, knownMember, readText, type Tool, type ToolFacts } from '../transport/known-events.ts';
import type { MessagePart, TextPart, ToolPart } from './channel-types.ts';

/** What an event has changed. */
interface Changed {
  /** All parts, if one of them has changed. */
  readonly parts?: MessagePart[];
  /** The id of the text in the event. */
  readonly messageId?: string | undefined;
  /** The tool calls for which the event asks the user. */
  readonly asks?: readonly string[];
}

/** Collects the parts of one answer. */
export interface AnswerParts {
  /** Takes an event. @throws RelayError if the run has failed */
  readonly take: (event: BotEvent) => Changed;
  /** Sets what the user has decided about a tool call; with undefined, it waits for the user. Returns all parts. */
  readonly decide: (toolCallId: string, approved: boolean | undefined) => MessagePart[];
}

/** Makes the parts of one answer from its events, in the order in which they have begun. */
export function answerParts(): AnswerParts {
  const parts = new Map<string, MessagePart>();
  /** Makes a call wait for the user. Returns its id. */
  function ask(call: ToolCall, id: string): string {
    parts.set(id, { ...call, state: 'approval-requested', approval: { id } });
    return id;
  }
  return {
    take(event) {
      const said = readText(event);
      if (said) {
        const key = `text ${said.part ?? ''}`;
        const before = parts.get(key) as TextPart | undefined;
        parts.set(key, { type: 'text', text: said.text ?? (before?.text ?? '') + said.add });
        return { parts: [...parts.values()], messageId: said.part };
      }
      if (!event.known) return {};
      const { toolCallConsent, toolCallStart, toolCallComplete } = knownMember<ToolFacts>(event);
      const asks = toolCallConsent?.pendingCalls.map((call) =>
        ask(callOf(call.toolCallId, call), call.toolCallId),
      );
      const called = toolCallStart ?? toolCallComplete;
      if (called) {
        const call = callOf(callIdOf(called), called.toolCall);
        const output = toolCallComplete?.toolCallResult ?? null;
        const end = { state: 'output-available', output } as const;
        parts.set(call.toolCallId, { ...call, ...(toolCallComplete ? end : { state: 'input-available' }) });
      } else if (!event.eventType.startsWith('asgard.')) {
        parts.set(`data ${parts.size}`, { type: `data-${event.eventType}`, data: event.fact });
      } else if (!asks) return {};
      return { parts: [...parts.values()], ...(asks && { asks }) };
    },
    decide(id, approved) {
      const { state: _, approval: __, ...call } = parts.get(id) as Approval;
      if (approved === undefined) ask(call, id);
      else parts.set(id, { ...call, state: 'approval-responded', approval: { id, approved } });
      return [...parts.values()];
    },
  };
}

type Approval = Extract<ToolPart, { readonly approval: unknown }>;
type ToolCall = Omit<Approval, 'state' | 'approval'>;

function callOf(toolCallId: string, { toolName, parameter }: Tool): ToolCall {
  return { type: 'dynamic-tool', toolName, toolCallId, input: parameter };
}
