import { useEffect, useMemo, useSyncExternalStore } from 'react';
import { type BotClientOptions, createBotClient } from './bot-client.ts';
import { type Conversation, type ConversationOptions, conversation, type Snapshot } from './conversation.ts';

export type { BotClientOptions, BotEvent, Session } from './bot-client.ts';
export { RelayError } from './bot-client.ts';
export type { ChatMessage } from './conversation.ts';

/** What a component shows of a conversation, and what it can do. */
export type Bot = Snapshot & Pick<Conversation, 'send' | 'stop' | 'signIn' | 'signOut'>;

/**
 * A conversation with one bot (React 18 and 19). A component draws it at most once per frame. It lasts as long as the
 * component and the three settings; answers that are under way stop with it.
 */
export function useBot(options: BotClientOptions & ConversationOptions): Bot {
  const { baseUrl, namespace, botProviderName } = options;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the others are functions that callers write in place
  const talk = useMemo(
    () => conversation(createBotClient(options), options),
    [baseUrl, namespace, botProviderName],
  );
  useEffect(() => {
    void talk.refresh();
    return () => talk.stop();
  }, [talk]);
  const { send, stop, signIn, signOut } = talk;
  const snapshot = useSyncExternalStore(talk.subscribe, talk.snapshot, talk.snapshot);
  return { ...snapshot, send, stop, signIn, signOut };
}
