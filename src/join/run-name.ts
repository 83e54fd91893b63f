import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { keyPart, rememberingKeyPart } from '../storage/redis-key.ts';

/** What tells one message from all others. Each part is a hash. */
export interface RunName {
  /** Of bot and conversation. */
  readonly conversation: string;
  /** Of these, user and id. Clients use one id for a message and for the consent that it asks for. */
  readonly message: string;
  /** Of all this, the query that is passed on and the body. */
  readonly key: string;
  /** Whether it stands for one thing that its user has said once: then it can be joined after its end, too. */
  readonly isKept: boolean;
}

/** What all messages with one id have in common. */
export type MessageName = Pick<RunName, 'conversation' | 'message'>;

/** What is known of a conversation at the bot service. */
export interface RunPlace {
  /** `namespace/bot`. */
  readonly bot: string;
  /** The id that the service knows; undefined if the message names none. */
  readonly channel: string | undefined;
}

export interface NamedMessage extends RunPlace {
  readonly userId: string;
  /** The query that is passed on. */
  readonly query: string;
  /** For `Idempotency-Key`, which is the message's id if its body has none. */
  readonly headers: IncomingHttpHeaders;
  /** The parsed body. */
  readonly value: unknown;
  readonly bytes: Buffer;
  /** The hash of the body's bytes, if it is known. */
  readonly hash: string | undefined;
}

const MAX_ID_LENGTH = 256;
/** A shorter id of a message may be one that its client uses again, such as a number. */
const MIN_KEPT_ID_LENGTH = 16;

/** The name of a message; undefined if it has no id of 1 to 256 characters. */
export function runName(message: NamedMessage): RunName | undefined {
  const { value, headers, bytes } = message;
  const body = membersOf(value);
  const id = idIn(body.customMessageId) ?? idIn(headers['idempotency-key']);
  if (id === undefined) return undefined;
  const { conversation, message: own } = messageName(message, id);
  // Written out: a spread takes more memory, for as long as the name is remembered.
  return {
    conversation,
    message: own,
    key: keyPart(`${own} ${message.hash ?? hash('sha256', bytes, 'base64url')} ${message.query}`),
    isKept: id.length >= MIN_KEPT_ID_LENGTH && saysSomething(body),
  };
}

/** Whether a message with this parsed body begins its conversation anew. */
export function resetsConversation(value: unknown): boolean {
  return membersOf(value).action === 'RESET_CHANNEL';
}

/** A conversation has many messages. */
const conversationPart = rememberingKeyPart();

/** The conversation's part of a name. */
export function conversationKey({ bot, channel = '' }: RunPlace): string {
  return conversationPart(JSON.stringify([bot, channel]));
}

/** The parts of a name that all messages with one id have in common. */
export function messageName(place: RunPlace & { readonly userId: string }, id: string): MessageName {
  const { bot, channel = '', userId } = place;
  return {
    conversation: conversationKey(place),
    message: keyPart(JSON.stringify([bot, channel, userId, id])),
  };
}

function membersOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function idIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && value.length <= MAX_ID_LENGTH ? value : undefined;
}

/** Not so for a consent, a reset or a nudge: the same bytes may be meant once more. */
function saysSomething({ action, text, blobIds }: Record<string, unknown>): boolean {
  const hasText = typeof text === 'string' && text !== '';
  const hasFiles = Array.isArray(blobIds) && blobIds.length > 0;
  return (action === undefined || action === null || action === 'NONE') && (hasText || hasFiles);
}
