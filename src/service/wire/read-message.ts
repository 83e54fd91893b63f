import type { IncomingMessage } from 'node:http';
import { Refusal } from './answers.ts';
import { readJsonObject } from './read-body.ts';

const ACTIONS = ['NONE', 'RESET_CHANNEL', 'RESPONSE_TOOL_CALL_CONSENT'] as const;

/** A message whose form has been checked. What clients in the field may leave out may be missing. */
export interface ReadMessage {
  readonly text?: unknown;
  readonly customChannelId?: unknown;
  readonly customMessageId?: unknown;
  readonly action: (typeof ACTIONS)[number];
  readonly blobIds: readonly string[];
  readonly toolCallConsents: readonly ToolCallConsent[];
}

/** The user's answer to a tool call that waits for it. */
export interface ToolCallConsent {
  readonly toolCallId: string;
  readonly result: (typeof RESULTS)[number];
}

const RESULTS = ['ALLOW_ONCE', 'ALLOW_ALWAYS', 'DENY_ONCE'] as const;

/**
 * Reads a message. Every member may be missing.
 * @throws Refusal `INVALID_MESSAGE` or `TOO_LARGE`
 */
export async function readMessage(req: IncomingMessage): Promise<ReadMessage> {
  const message = await readJsonObject(req);
  if (!message) throw new Refusal('INVALID_MESSAGE');
  const { action = 'NONE', blobIds, toolCallConsents } = message;
  const known = ACTIONS.find((one) => one === action);
  if (!known) throw new Refusal('INVALID_MESSAGE');
  return {
    ...message,
    action: known,
    blobIds: listOf(blobIds, (one) => typeof one === 'string'),
    toolCallConsents: listOf(toolCallConsents, isConsent),
  };
}

/** The value as a list whose members all are as `is` says; empty if there is none. */
function listOf<Member>(value: unknown, is: (one: unknown) => one is Member): Member[] {
  const list: unknown[] = Array.isArray(value) ? value : [];
  if ((value ?? undefined) !== undefined && !Array.isArray(value)) throw new Refusal('INVALID_MESSAGE');
  if (!list.every(is)) throw new Refusal('INVALID_MESSAGE');
  return list;
}

function isConsent(value: unknown): value is ToolCallConsent {
  const { toolCallId, result } = (value ?? {}) as Partial<Record<keyof ToolCallConsent, unknown>>;
  return typeof toolCallId === 'string' && RESULTS.some((one) => one === result);
}
