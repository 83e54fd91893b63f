import { callPage, type RelayError } from '../transport/relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import type { ChannelOpening } from './channel-opening.ts';
import type { ChannelPast } from './channel-past.ts';
import type { Channel, UploadOptions } from './channel-types.ts';

type Calls = Pick<Channel, 'feedback' | 'upload' | 'reset'>;

interface ChannelCallsDependencies {
  readonly shown: ShownChannel;
  readonly opening: Pick<ChannelOpening, 'opened' | 'renew' | 'talk'> & {
    /** Adds to the number of those that use the channel: 1 at the start, -1 at the end. */
    readonly hold: (by: 1 | -1) => void;
  };
  readonly past: ChannelPast;
  readonly stop: () => Promise<void>;
}

/** What else a page does in a channel. */
export function channelCalls(dependencies: ChannelCallsDependencies): Calls {
  const { opening, shown } = dependencies;
  const { state } = shown;
  /** Resolves with undefined if `work` fails, and shows why if the user has not left. */
  async function trying<T>(
    work: (talk: BotConversation) => Promise<T>,
    { signal, onError }: UploadOptions = {},
  ): Promise<T | undefined> {
    state.change({ error: undefined });
    opening.hold(1);
    let talk: BotConversation | undefined;
    try {
      talk = await opening.opened();
      return await work(talk);
    } catch (error) {
      if (signal?.aborted || talk !== opening.talk()) return undefined;
      const failure = state.fail(error);
      callPage(() => onError?.(failure));
      return undefined;
    } finally {
      opening.hold(-1);
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
    upload: (file, given) => {
      const options = given ?? {};
      return trying(async (talk) => {
        const blobId = await talk.upload(file, options);
        // In another conversation, the bot has no such file.
        if (talk !== opening.talk()) return undefined;
        const mediaType = file.type || 'application/octet-stream';
        return { type: 'file', mediaType, filename: file.name, url: talk.downloadUrl(file.name), blobId };
      }, options);
    },
    reset: async () => (await trying((talk) => reset(dependencies, talk))) ?? false,
  };
}

/** Forgets all that was said in `talk`. Returns false if the user has left meanwhile. @throws RelayError */
async function reset(
  { shown, opening, past, stop }: ChannelCallsDependencies,
  talk: BotConversation,
): Promise<boolean> {
  await stop();
  let isRenewed = false;
  await talk.reset().catch((error: RelayError) => {
    if (talk !== opening.talk()) return;
    // The relay lets nothing be forgotten: then another one begins.
    if (error.code !== 'operation_not_enabled' || !opening.renew()) throw error;
    isRenewed = true;
  });
  // Another user's messages may be there by now.
  if (!isRenewed && talk !== opening.talk()) return false;
  const its = isRenewed ? undefined : past.forget();
  if (its) past.begin({ ...its, isNew: true });
  shown.pending.clear();
  shown.state.removeAll();
  return true;
}
