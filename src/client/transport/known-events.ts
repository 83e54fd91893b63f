import type { BotEvent, Facts, Guards } from './bot-event.ts';
import { RelayError } from './relay-error.ts';

type Guard = (value: unknown) => boolean;

/** What a value must be: what a guard accepts, a list of one shape, or an object with a shape for each member. */
type Shape<T> = T extends string | number | boolean
  ? Guard
  : T extends readonly (infer Item)[]
    ? readonly [Shape<Item>]
    : { readonly [K in keyof T as unknown extends T[K] ? never : NameIn<T, K>]-?: Shape<NonNullable<T[K]>> };
/** The name of a member in a shape: `name?` if the member may be missing. */
type NameIn<T, K extends keyof T> = undefined extends T[K] ? `${string & K}?` : K;

const isText: Guard = (value) => typeof value === 'string';
const isBoolean: Guard = (value) => typeof value === 'boolean';

const MESSAGE = { 'messageId?': isText };
const TEXT_MESSAGE = { ...MESSAGE, text: isText, 'isStopped?': isBoolean };
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
  'asgard.message.user': {
    messageUser: {
      'text?': isText,
      'blobIds?': [isText],
      'blobs?': [{ blobId: isText, fileName: isText, 'mime?': isText }],
    },
  },
  'asgard.message.feedback': { messageFeedback: { targetMessageId: isText, verdict: isText } },
  'asgard.tool_call.start': { toolCallStart: CALL },
  'asgard.tool_call.complete': { toolCallComplete: CALL },
  'asgard.tool_call.consent': {
    toolCallConsent: { pendingCalls: [{ ...TOOL, toolCallId: isText }] },
  },
};

/** Whether the value is an object with members: no array, and not null. */
export function isObject(value: unknown): value is { readonly [name: string]: unknown } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** In place of a value that does not have its shape. */
const NONE = Symbol();

/** A copy of the value, or `NONE` if it does not have this shape. Optional members with a wrong value are left out. */
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

/** Makes the function that makes a BotEvent of an event's data. `guards` are those of the application. */
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
 * The one member that `Facts` names in the fact of this kind of event. Empty for kinds of the application, whose facts can
 * be anything.
 */
export function knownMember<T>(event: BotEvent): Partial<T> {
  const [name = ''] = Object.keys(Object(SHAPES[event.eventType as keyof Facts]));
  return { [name]: Object(event.fact)[name] } as Partial<T>;
}

/** The text in an event: a piece to append (`add`), or the whole text so far (`text`). */
export type Text = (
  | { readonly add: string; readonly text?: undefined }
  | { readonly text: string; readonly add?: undefined }
) & {
  /** The id of the message that the text belongs to, if an answer consists of several messages. */
  readonly part?: string | undefined;
};

/** The facts of all events with a text. */
type TextFacts = Facts['asgard.message.start'] &
  Facts['asgard.message.delta'] &
  Facts['asgard.message.complete'];

/**
 * The text in an event; undefined if it has none.
 * @throws RelayError if the event says that the bot's run has failed
 */
export function readText(event: BotEvent): Text | undefined {
  if (event.eventType === 'asgard.run.error') {
    const { message = 'The run of the bot failed.', code } = event.known ? event.fact.runError.error : {};
    throw new RelayError(message, { code: code ?? 'unexpected_response', status: 200 });
  }
  const { messageStart, messageDelta, messageComplete } = knownMember<TextFacts>(event);
  const { message } = messageDelta ?? messageComplete ?? messageStart ?? {};
  const part = message?.messageId ?? undefined;
  if (messageDelta) return { add: messageDelta.message.text, part };
  if (messageComplete) return { text: messageComplete.message.text, part };
  // A resumed stream repeats a message from its start.
  return part === undefined ? undefined : { text: '', part };
}

/** When the bot service has kept this event, in ms since 1970; undefined if it does not say so. */
export function timeOf({ raw }: BotEvent): number | undefined {
  const at = isObject(raw) ? Date.parse(String(raw.createdAt)) : Number.NaN;
  return Number.isNaN(at) ? undefined : at;
}

/** The facts of all events about tool calls. */
export type ToolFacts = Facts['asgard.tool_call.start'] &
  Facts['asgard.tool_call.complete'] &
  Facts['asgard.tool_call.consent'];

type CalledTool = ToolFacts['toolCallStart'];

/** A tool, and what it is called with. */
export type Tool = CalledTool['toolCall'];

/** The id of a tool call: the same process and number mean the same call. */
export function callIdOf({ processId, callSeq }: Pick<CalledTool, 'processId' | 'callSeq'>): string {
  return `${processId}-${callSeq}`;
}
