import type { BotEvent, Facts, Guards } from './bot-event.ts';
import { isObject } from './is-object.ts';

type Guard = (value: unknown) => boolean;

/** A guard for each member of a type, but for those of any type. */
type Shape<T> = T extends string | number | readonly unknown[] | null | undefined
  ? Guard
  : { readonly [K in keyof T as unknown extends T[K] ? never : K]-?: Shape<T[K]> };

const isText: Guard = (value) => typeof value === 'string';
const isMaybe =
  (shape: unknown): Guard =>
  (value) =>
    value == null || fits(value, shape);
const isListOf =
  (shape: unknown): Guard =>
  (value) =>
    Array.isArray(value) && value.every((one) => fits(one, shape));

const isMaybeText = isMaybe(isText);
const MESSAGE = { messageId: isMaybeText };
const TEXT_MESSAGE = { ...MESSAGE, text: isText };
const TOOL = { toolName: isText, toolsetName: isMaybeText };
const CALL = { processId: isText, callSeq: Number.isFinite as Guard, toolCall: TOOL };

/** The shapes of the facts. The compiler sees that nothing of `Facts` is left out. */
const SHAPES: { readonly [K in keyof Facts]: Shape<Facts[K]> } = {
  'asgard.run.init': { runInit: {} },
  'asgard.run.done': { runDone: {} },
  'asgard.run.error': { runError: { error: { message: isText, code: isMaybeText } } },
  'asgard.message.start': { messageStart: { message: MESSAGE } },
  'asgard.message.delta': { messageDelta: { message: TEXT_MESSAGE } },
  'asgard.message.complete': { messageComplete: { message: TEXT_MESSAGE } },
  'asgard.message.user': { messageUser: { text: isMaybeText, blobIds: isMaybe(isListOf(isText)) } },
  'asgard.message.feedback': { messageFeedback: { targetMessageId: isText, verdict: isText } },
  'asgard.tool_call.start': { toolCallStart: CALL },
  'asgard.tool_call.complete': { toolCallComplete: CALL },
  'asgard.tool_call.consent': {
    toolCallConsent: { pendingCalls: isListOf({ ...TOOL, toolCallId: isText }) },
  },
};

/** Whether a value has a shape: a guard, or an object with a shape for each member. */
function fits(value: unknown, shape: unknown): boolean {
  if (typeof shape === 'function') return shape(value);
  return isObject(value) && Object.entries(shape as object).every(([name, of]) => fits(value[name], of));
}

/** Makes the function that finds out what an event is. `guards` are those of the application. */
export function eventReader(guards: Guards = {}) {
  const shapes: Readonly<Record<string, unknown>> = { ...SHAPES, ...guards };
  return (raw: unknown, name: string, id: string | undefined): BotEvent => {
    const { eventType: type, requestId, fact } = isObject(raw) ? raw : {};
    const eventType = isText(type) ? String(type) : name;
    const runId = isText(requestId) ? requestId : undefined;
    const known = Object.hasOwn(shapes, eventType) && fits(fact, shapes[eventType]);
    // The shape has shown what the compiler cannot know.
    return { known, eventType, runId, id, raw, ...(known && { fact }) } as BotEvent;
  };
}
