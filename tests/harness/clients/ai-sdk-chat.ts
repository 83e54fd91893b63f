import { Chat } from '@ai-sdk/react';
import type { ChatInit, UIMessage } from 'ai';
import { botChatTransport } from '../../../src/client/ai-sdk/bot-chat-transport.ts';
import type { BotChatTransportOptions } from '../../../src/client/ai-sdk/chat-types.ts';
import type { BotClient } from '../../../src/client/session/bot-client.ts';

/** A chat of the AI SDK over the transport of this checkout; its id is `my-chat`. */
export function chatOf(
  client: BotClient,
  { init, ...options }: BotChatTransportOptions & { readonly init?: ChatInit<UIMessage> } = {},
): Chat<UIMessage> {
  return new Chat<UIMessage>({ id: 'my-chat', ...init, transport: botChatTransport(client, options) });
}

/** The texts of a chat, each with who says it. */
export function textsOf({ messages }: Chat<UIMessage>): string[] {
  const said = ({ parts }: UIMessage) =>
    parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
  return messages.map((message) => `${message.role}: ${said(message)}`);
}
