import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { keyPart } from '../storage/redis-key.ts';

/** What tells one message from all others. Each part is a hash, of more than the part before it. */
export interface RunName {
  /** Of the bot and the conversation; without a conversation, also of the user and of what names the message. */
  readonly conversation: string;
  /**
   * Of the bot, the conversation, the user and the message's id; undefined without an id. Clients use one id for a message
   * and the consent it asks for.
   */
  readonly message: string | undefined;
  /** Of all this, the body, and the query that is passed on. */
  readonly key: string;
  /** Whether it is known after its run has ended: only if its user cannot mean the same bytes a second time. */
  readonly outlivesRun: boolean;
}

/** What all messages with one id have in common. */
export interface MessageName {
  readonly conversation: string;
  readonly message: string;
}

/** What is known of a conversation at the bot service. */
export interface ServiceConversation {
  /** `namespace/bot`. */
  readonly bot: string;
  /** The id that the service knows; undefined if the message names none. */
  readonly channel: string | undefined;
}

export interface NamedMessage extends ServiceConversation {
  /** A hash of the user and their realm. */
  readonly user: string;
  /** The query that is passed on. */
  readonly query: string;
  /** For `Idempotency-Key`, which is the message's id if its body has none. */
  readonly headers: IncomingHttpHeaders;
  /** The parsed body. */
  readonly value: unknown;
  readonly bytes: Buffer;
}

const MAX_ID_LENGTH = 256;
/** A shorter id of a message may be one that its client uses again, such as a number. */
const MIN_KEPT_ID_LENGTH = 16;

/** The name of a message. Without an id of 1 to 256 characters, its bytes name it, while its run goes on. */
export function runName(named: NamedMessage): RunName {
  const { bot, channel, user, value, headers, bytes, query } = named;
  const body = membersOf(value);
  const id = idIn(body.customMessageId) ?? idIn(headers['idempotency-key']);
  const own = id ?? hash('sha256', bytes, 'base64url');
  const { conversation, message } = messageName({ bot, channel, user }, own);
  return {
    conversation,
    message: id === undefined ? undefined : message,
    key: keyPart(`${message} ${hash('sha256', bytes, 'base64url')} ${query}`),
    outlivesRun: id !== undefined && id.length >= MIN_KEPT_ID_LENGTH && saysSomething(body),
  };
}

/** Whether a message with this parsed body begins its conversation anew. */
export function resetsConversation(value: unknown): boolean {
  return membersOf(value).action === 'RESET_CHANNEL';
}

/** The conversation's part of a name. */
export function conversationKey({
  bot,
  channel,
}: {
  readonly bot: string;
  readonly channel: string;
}): string {
  return keyPart(JSON.stringify([bot, channel]));
}

/** The parts of a name that all messages with one id have in common. */
export function messageName(
  { bot, channel, user }: ServiceConversation & { readonly user: string },
  id: string,
): MessageName {
  const message = keyPart(JSON.stringify([bot, channel ?? '', user, id]));
  return { conversation: channel === undefined ? message : conversationKey({ bot, channel }), message };
}

function membersOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function idIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && value.length <= MAX_ID_LENGTH ? value : undefined;
}

/** False for a consent, a reset or a nudge: the same bytes may be meant a second time. */
function saysSomething({ action, text, blobIds }: Record<string, unknown>): boolean {
  const hasText = typeof text === 'string' && text !== '';
  const hasFiles = Array.isArray(blobIds) && blobIds.length > 0;
  return (action === undefined || action === null || action === 'NONE') && (hasText || hasFiles);
}
