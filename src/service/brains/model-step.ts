import { randomUUID } from 'node:crypto';
import type { AssistantModelMessage, ModelMessage, ToolModelMessage, ToolSet, TypedToolCall } from 'ai';
import type { Step } from './steps.ts';

/** How much of a tool's result later turns remember, in characters. */
const MAX_REMEMBERED_RESULT = 2000;
const FAILED = { error: 'The tool call failed.' };

type CallPart = Exclude<AssistantModelMessage['content'], string>[number];
type ResultPart = ToolModelMessage['content'][number];

/** One step of a model: what it says, and the tools that it calls. */
export interface ModelStep {
  readonly callsTools: boolean;
  say(part: { readonly id: string; readonly text: string }): Iterable<Step>;
  call(part: TypedToolCall<ToolSet>): Iterable<Step>;
  /** `output` is undefined if the call failed. */
  result(part: { readonly toolCallId: string; readonly output: unknown }): Iterable<Step>;
  /** Completes its message, which is remembered. */
  complete(): Iterable<Step>;
}

/** A new step. Its text is one message, which starts with its first words. */
export function modelStep(): ModelStep {
  const calls = new Map<string, { readonly id: string; readonly toolName: string }>();
  const callParts: CallPart[] = [];
  const resultParts: ResultPart[] = [];
  let text = '';
  let textId: string | undefined;
  const said = (): CallPart[] => (text === '' ? [] : [{ type: 'text', text }]);
  return {
    get callsTools() {
      return callParts.length > 0;
    },
    *say(part) {
      if (part.text === '') return;
      if (text === '') yield { startMessage: true };
      const piece = text !== '' && part.id !== textId ? `\n\n${part.text}` : part.text;
      textId = part.id;
      text += piece;
      yield { say: piece };
    },
    *call({ toolCallId, input, ...named }) {
      const id = newId();
      const toolName = plainName(named.toolName);
      const parameter = objectOf(input);
      calls.set(toolCallId, { id, toolName });
      callParts.push({ type: 'tool-call', toolCallId: id, toolName, input: parameter });
      yield { startTool: { toolsetName: 'service', toolName, parameter }, id };
    },
    *result({ toolCallId, output }) {
      const call = calls.get(toolCallId);
      if (!call || !calls.delete(toolCallId)) return;
      const toolResult = output === undefined ? FAILED : objectOf(output);
      const { id, toolName } = call;
      resultParts.push({
        type: 'tool-result',
        toolCallId: id,
        toolName,
        output: rememberedOutput(toolResult),
      });
      yield { toolResult, id };
    },
    *complete() {
      const content = [...said(), ...callParts];
      const remember: ModelMessage[] = content.length > 0 ? [{ role: 'assistant', content }] : [];
      if (resultParts.length > 0) remember.push({ role: 'tool', content: resultParts });
      if (text !== '') yield { completeMessage: true, remember };
      else if (remember.length > 0) yield { remember };
    },
  };
}

/** Providers may use an id again, or refuse those of others. Nine letters and digits are taken by all. */
const newId = () => randomUUID().replaceAll('-', '').slice(0, 9);

/** A model can call what there is not. A name with other characters, kept in the history, would be refused for good. */
const plainName = (name: string) => name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unknown';

/** A value of a model or a tool as an object, which events need. */
const objectOf = (value: unknown): object =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? value : { value: value ?? null };

function rememberedOutput(result: object) {
  const text = JSON.stringify(result);
  const isShort = text.length <= MAX_REMEMBERED_RESULT;
  const value = isShort ? text : `${text.slice(0, MAX_REMEMBERED_RESULT).toWellFormed()} … [shortened]`;
  return { type: 'text' as const, value };
}
