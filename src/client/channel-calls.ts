import type { BotConversation } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import type { ChannelOpening } from './channel-opening.ts';
import type { ChannelPast } from './channel-past.ts';
import type { Channel } from './channel-types.ts';
import type { RelayError } from './relay-error.ts';

type Calls = Pick<Channel, 'feedback' | 'upload' | 'reset'>;

interface CallsParts {
  readonly shown: ShownChannel;
  readonly opening: Pick<ChannelOpening, 'opened' | 'renew'>;
  readonly past: ChannelPast;
  readonly stop: () => Promise<void>;
}

/** What else a page does in a channel. */
export function channelCalls({ shown: { state, pending }, opening, past, stop }: CallsParts): Calls {
  /** Resolves with undefined if `work` fails. */
  async function trying<T>(
    work: (talk: BotConversation) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T | undefined> {
    state.change({ error: undefined });
    try {
      return await work(await opening.opened());
    } catch (error) {
      if (!signal?.aborted) state.fail(error);
      return undefined;
    }
  }
  const find = (id: string) => state.messages().find((one) => one.id === id);
  return {
    feedback: async (id, verdict, comment = '') =>
      (await trying(async (talk) => {
        await talk.feedback({ messageId: find(id)?.metadata.messageId ?? '', verdict, comment });
        const message = find(id);
        if (message) state.replace({ ...message, metadata: { ...message.metadata, verdict } });
        return true;
      })) ?? false,
    upload: (file, options = {}) =>
      trying(async (talk) => {
        const blobId = await talk.upload(file, options);
        const mediaType = file.type || 'application/octet-stream';
        return { type: 'file', mediaType, filename: file.name, url: talk.downloadUrl(file.name), blobId };
      }, options.signal),
    reset: async () =>
      (await trying(async (talk) => {
        await stop();
        await talk.reset().catch((error: RelayError) => {
          // Nobody has begun it, or the bot service cannot forget: then another one begins.
          if (error.code === 'not_your_conversation') return;
          if (error.code !== 'operation_not_enabled' || !opening.renew()) throw error;
        });
        past.clear();
        pending.clear();
        state.removeAll();
        return true;
      })) ?? false,
  };
}
