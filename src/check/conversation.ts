import { randomBytes, randomUUID } from 'node:crypto';
import type { Bot, OperationGroup } from '../bots/bot.ts';
import { groupsOf } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';

/** A conversation of the check alone. */
export interface Conversation {
  /** Its id, as a page has it: 64 characters, as many as the ids that the relay makes have. */
  readonly id: string;
  /** Whether the bot service may have it: a message was answered in it, or a file was taken. */
  isBegun: boolean;
  /** Where the bot service keeps the file of the check, if it has said so. */
  filePath?: string | undefined;
  /** The first sandbox that the conversation has launched, by its metadata. */
  sandbox?: string | undefined;
}

/** A conversation that nobody has begun. */
export function newConversation(): Conversation {
  return { id: `bot-relay-check-${randomBytes(24).toString('hex')}`, isBegun: false };
}

/** A message as clients in the field send it. */
export interface Message {
  readonly customChannelId: string;
  readonly customMessageId: string;
  readonly text: string;
  readonly action: 'NONE';
}

/** A message for a new conversation, if none is given. */
export function newMessage(text: string, { id }: Conversation = newConversation()): Message {
  return { customChannelId: id, customMessageId: randomUUID(), text, action: 'NONE' };
}

/** The bot that `namespace/bot` names. */
export function botOf(name: string): Bot {
  const [namespace = '', botProviderName = ''] = name.split('/');
  return { namespace, botProviderName };
}

/** The groups of operations that this configuration enables for `namespace/bot`. */
export function groupsOfBot({ upstream, operations }: Config, bot: string): readonly OperationGroup[] {
  return groupsOf(upstream, bot) ?? operations;
}
