/** What names a message at the relay. It says nothing of its text. */
export interface MessageName {
  readonly customChannelId: string;
  readonly customMessageId: string;
}

/** The name of the message with this body; undefined if it has none. */
export function nameOf(message: object): MessageName | undefined {
  const { customChannelId, customMessageId } = message as Partial<Record<string, unknown>>;
  if (typeof customChannelId !== 'string' || typeof customMessageId !== 'string') return undefined;
  return customChannelId && customMessageId ? { customChannelId, customMessageId } : undefined;
}
