import { useState, useSyncExternalStore } from 'react';
import { type BotClientOptions, createBotClient } from './bot-client.ts';
import type { Snapshot } from './chat-state.ts';
import { type Actions, type Conversation, type ConversationOptions, conversation } from './conversation.ts';

export type { Read, Said } from './answer-text.ts';
export type { BotClientOptions, BotEvent, Session } from './bot-client.ts';
export { RelayError } from './bot-client.ts';
export type { ChatMessage } from './chat-state.ts';

/** The bot, and how its events are read. */
export type UseBotOptions = BotClientOptions & ConversationOptions;

/** What a component shows of a conversation, and what it can do. The functions keep their identity between renders. */
export type Bot = Snapshot & Actions;

/**
 * A conversation of this component with one bot (React 18 and 19), rendered at most once per frame. It ends when the
 * component is unmounted, or when `baseUrl`, `namespace`, `botProviderName` or `customChannelId` change; then its answers
 * stop. Changes of the other options have no effect.
 */
export function useBot(options: UseBotOptions): Bot {
  const { baseUrl, namespace, botProviderName, customChannelId } = options;
  const bot = JSON.stringify([baseUrl, namespace, botProviderName, customChannelId]);
  // Not in useMemo, since React may drop its value.
  const [current, setCurrent] = useState(() => begin(bot, options));
  // React renders the component again before its children.
  if (current.bot !== bot) setCurrent(begin(bot, options));
  const { subscribe, snapshot, actions } = current.shown;
  return { ...useSyncExternalStore(subscribe, snapshot, snapshot), ...actions };
}

interface CurrentConversation {
  /** The bot and the conversation that are meant. */
  readonly bot: string;
  readonly shown: Conversation;
}

function begin(bot: string, options: UseBotOptions): CurrentConversation {
  return { bot, shown: conversation(createBotClient(options), options) };
}
