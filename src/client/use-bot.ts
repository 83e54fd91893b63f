import { useState, useSyncExternalStore } from 'react';
import { type BotClientOptions, createBotClient } from './bot-client.ts';
import type { Snapshot } from './chat-state.ts';
import { type Actions, type Conversation, type ConversationOptions, conversation } from './conversation.ts';

export type { Read, Said } from './answer-text.ts';
export type { BotClientOptions, BotEvent, Session } from './bot-client.ts';
export { RelayError } from './bot-client.ts';
export type { ChatMessage } from './chat-state.ts';

/** What to talk to, and how to read it. */
export type UseBotOptions = BotClientOptions & ConversationOptions;

/** What a component shows of a conversation, and what it can do. The functions stay the same ones. */
export type Bot = Snapshot & Actions;

/**
 * A conversation of this component with one bot (React 18 and 19), drawn at most once per frame. It lasts until the
 * component is unmounted, or `baseUrl`, `namespace` or `botProviderName` change; answers that are under way stop with
 * it. The other options count as they were when it began.
 */
export function useBot(options: UseBotOptions): Bot {
  const { baseUrl, namespace, botProviderName } = options;
  const bot = JSON.stringify([baseUrl, namespace, botProviderName]);
  // Not in useMemo, which may forget.
  const [held, hold] = useState(() => begin(bot, options));
  // React draws the component once more before it goes on.
  if (held.bot !== bot) hold(begin(bot, options));
  const { subscribe, snapshot, actions } = held.conversation;
  return { ...useSyncExternalStore(subscribe, snapshot, snapshot), ...actions };
}

interface Held {
  readonly bot: string;
  readonly conversation: Conversation;
}

function begin(bot: string, options: UseBotOptions): Held {
  return { bot, conversation: conversation(createBotClient(options), options) };
}
