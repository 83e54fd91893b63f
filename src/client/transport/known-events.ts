import type { BotEvent, Facts, Guards } from './bot-event.ts';
import { isObject } from './is-object.ts';

type Guard = (value: unknown) => boolean;

/** What a value must be: a guard says it, or each item has one shape, or each member has its own. */
type Shape<T> = T extends string | number
  ? Guard
  : T extends readonly (infer Item)[]
    ? readonly [Shape<Item>]
    : { readonly [K in keyof T as unknown extends T[K] ? never : NameIn<T, K>]-?: Shape<NonNullable<T[K]>> };
/** The name of a member in a shape: `name?` if the member may be missing. */
type NameIn<T, K extends keyof T> = undefined extends T[K] ? `${string & K}?` : K;

const isText: Guard = (value) => typeof value === 'string';

const MESSAGE = { 'messageId?': isText };
const TEXT_MESSAGE = { ...MESSAGE, text: isText };
const TOOL = { toolName: isText, 'toolsetName?': isText };
const CALL = { processId: isText, callSeq: Number.isFinite as Guard, toolCall: TOOL };

/** The shapes of the facts. The compiler sees that nothing of `Facts` is left out. */
const SHAPES: { readonly [K in keyof Facts]: Shape<Facts[K]> } = {
  'asgard.run.init': { runInit: {} },
  'asgard.run.done': { runDone: {} },
  'asgard.run.error': { runError: { error: { message: isText, 'code?': isText } } },
  'asgard.message.start': { messageStart: { message: MESSAGE } },
  'asgard.message.delta': { messageDelta: { message: TEXT_MESSAGE } },
  'asgard.message.complete': { messageComplete: { message: TEXT_MESSAGE } },
  'asgard.message.user': { messageUser: { 'text?': isText, 'blobIds?': [isText] } },
  'asgard.message.feedback': { messageFeedback: { targetMessageId: isText, verdict: isText } },
  'asgard.tool_call.start': { toolCallStart: CALL },
  'asgard.tool_call.complete': { toolCallComplete: CALL },
  'asgard.tool_call.consent': {
    toolCallConsent: { pendingCalls: [{ ...TOOL, toolCallId: isText }] },
  },
};

/** A value that does not have its shape. */
const NONE = Symbol();

/** The value if it has this shape, without members that may be missing and have another; `NONE` if it has not. */
function fitting(value: unknown, shape: unknown): unknown {
  if (typeof shape === 'function') return shape(value) ? value : NONE;
  if (Array.isArray(shape)) {
    const items = Array.isArray(value) ? value.map((item) => fitting(item, shape[0])) : [NONE];
    return items.includes(NONE) ? NONE : items;
  }
  if (!isObject(value)) return NONE;
  const fit: Record<string, unknown> = { ...value };
  for (const [key, of] of Object.entries(shape as object)) {
    const name = key.replace('?', '');
    fit[name] = fitting(value[name], of);
    if (fit[name] !== NONE) continue;
    if (name === key) return NONE;
    delete fit[name];
  }
  return fit;
}

/** Makes the function that finds out what an event is. `guards` are those of the application. */
export function eventReader(guards: Guards = {}) {
  // The client reads its own kinds by their shapes, which no guard can replace.
  const shapes: Record<string, unknown> = { ...guards, ...SHAPES };
  return (raw: unknown, name: string, id: string | undefined): BotEvent => {
    const { eventType: type, requestId, fact } = isObject(raw) ? raw : {};
    const eventType = isText(type) ? String(type) : name;
    const runId = isText(requestId) ? requestId : undefined;
    const shape = Object.hasOwn(shapes, eventType) && shapes[eventType];
    let fit: unknown = NONE;
    try {
      if (shape) fit = fitting(fact, shape);
    } catch {
      // A guard of the application has thrown.
    }
    const known = fit !== NONE;
    // The shape has shown what the compiler cannot know.
    return { known, eventType, runId, id, raw, ...(known && { fact: fit }) } as BotEvent;
  };
}

/**
 * What an event of one of the client's own kinds says, by the one member of its shape; nothing for any other event. The
 * fact itself can have any other members, and that of an application's kind can be anything.
 */
export function saidIn<T>(event: BotEvent): Partial<T> {
  const [name = ''] = Object.keys(Object(SHAPES[event.eventType as keyof Facts]));
  return { [name]: Object(event.fact)[name] } as Partial<T>;
}
