/**
 * A transport for the `Chat` of the AI SDK 7, and the messages from before a reload.
 * @module bot-relay-client/ai-sdk
 */

import { conversationMessages } from '../channel/conversation-messages.ts';
import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { followedSession } from '../session/followed-session.ts';
import { asRelayError, callPage } from '../transport/relay-error.ts';
import { type BotChat, botChat } from './bot-chat.ts';
import { outgoingOf } from './chat-message.ts';
import type { BotChatTransport, BotChatTransportOptions } from './chat-types.ts';
import { visits } from './visits.ts';

export { RelayError } from '../transport/relay-error.ts';
export type { BotChatTransport, BotChatTransportOptions } from './chat-types.ts';
export { loadMessages } from './load-messages.ts';

/**
 * A transport for the `Chat` of the AI SDK 7. The id of a chat is the id of its conversation with the bot. The bot
 * service keeps what was said, so only the last message is sent. From the first call on, the transport follows who is
 * signed in.
 * @param client The client of the bot.
 * @param options How it behaves, and what it calls.
 * @throws TypeError if `client` is none of this package
 */
export function botChatTransport(
  client: BotClient,
  { regenerate, onStopError, onUserLeft }: BotChatTransportOptions = {},
): BotChatTransport {
  const { tracker } = internalsOf(client);
  const chats = new Map<string, BotChat>();
  const fail = (thrown: unknown) => callPage(() => onStopError?.(asRelayError(thrown)));
  const session = followedSession(client);
  const visit = visits({ tracker, session }, () => {
    chats.clear();
    callPage(() => onUserLeft?.());
  });
  const shared = { visit, fail };
  let isFollowing = false;
  /** Does something in a chat, which fails with RelayError. */
  async function inChat<T>(
    { chatId, abortSignal }: { readonly chatId: string; readonly abortSignal?: AbortSignal | undefined },
    act: (chat: BotChat, signal: AbortSignal | undefined) => Promise<T>,
  ): Promise<T> {
    if (!isFollowing) session.subscribe(() => {});
    isFollowing = true;
    const chat = chats.get(chatId) ?? botChat({ ...shared, talk: conversationMessages(client, chatId) });
    chats.set(chatId, chat);
    try {
      return await act(chat, abortSignal);
    } catch (thrown) {
      throw abortSignal?.aborted ? thrown : asRelayError(thrown);
    }
  }
  return {
    resumeStreamIsReplay: true,
    sendMessages: (request) =>
      inChat(request, async (chat, signal) =>
        chat.send(
          outgoingOf(request, (id) => regenerate === 'new-run' || chat.isUnsent(id)),
          signal,
        ),
      ),
    reconnectToStream: (request) => inChat(request, (chat, signal) => chat.join(signal)),
  };
}
