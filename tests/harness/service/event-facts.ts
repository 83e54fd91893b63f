import type { Facts } from '../../../src/client/session/bot-client.ts';

type Fields = Record<string, unknown>;

const message = { messageId: 'm', text: 'Hello' };
const call = {
  processId: 'p',
  callSeq: 0,
  toolCall: { toolName: 'look', toolsetName: 'web', parameter: { at: 'it' } },
};

/** A fact of each kind, with all members that its type has. */
export const FACTS: { readonly [K in keyof Facts]: Required<Facts[K]> } = {
  'asgard.run.init': { runInit: {} },
  'asgard.run.done': { runDone: {} },
  'asgard.run.error': { runError: { error: { message: 'Too many steps.', code: 'STEPS' } } },
  'asgard.message.start': { messageStart: { message: { messageId: 'm' } } },
  'asgard.message.delta': { messageDelta: { message } },
  'asgard.message.complete': { messageComplete: { message } },
  'asgard.message.user': { messageUser: { text: 'Hi', blobIds: ['b'] } },
  'asgard.message.feedback': { messageFeedback: { targetMessageId: 'm', verdict: 'GOOD' } },
  'asgard.tool_call.start': { toolCallStart: call },
  'asgard.tool_call.complete': { toolCallComplete: { ...call, toolCallResult: {} } },
  'asgard.tool_call.consent': { toolCallConsent: { pendingCalls: [{ toolCallId: 'c', ...call.toolCall }] } },
};

/** Members that can have any type. */
export const ANY = ['parameter', 'toolCallResult'];

/** The paths of all members below `value`. */
export function pathsIn(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  const here = path.length > 0 ? [path] : [];
  if (typeof value !== 'object' || value === null || ANY.includes(path.at(-1) ?? '')) return here;
  return [...here, ...Object.entries(value).flatMap(([name, of]) => pathsIn(of, [...path, name]))];
}

/** The fact with another value at `path`. */
export function withOther(fact: object, path: readonly string[], other: unknown): object {
  const copy = structuredClone(fact);
  const parent = path.slice(0, -1).reduce((of, name) => of[name] as Fields, copy as Fields);
  parent[path.at(-1) as string] = other;
  return copy;
}
