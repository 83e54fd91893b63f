import { randomBytes, randomUUID } from 'node:crypto';

/** A conversation of the check alone. */
export interface Conversation {
  /** Its id, as a page has it. */
  readonly id: string;
  /** The `customMessageId` of its first message. */
  readonly messageId: string;
  /** Whether the bot service may have it: a message was answered in it, or a file was taken. */
  isBegun: boolean;
}

/** A conversation that nobody has begun. Its id has 64 characters, as many as the ids that the relay makes. */
export function newConversation(): Conversation {
  return {
    id: `bot-relay-check-${randomBytes(24).toString('hex')}`,
    messageId: randomUUID(),
    isBegun: false,
  };
}
