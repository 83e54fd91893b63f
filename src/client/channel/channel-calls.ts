import { callPage, isNotEnabled } from '../transport/relay-error.ts';
import type { BotConversation } from './bot-conversation.ts';
import type { ShownChannel } from './channel-answer.ts';
import type { ChannelOpening } from './channel-opening.ts';
import type { ChannelPast } from './channel-past.ts';
import type { Channel, UploadOptions } from './channel-types.ts';

type Calls = Pick<Channel, 'feedback' | 'upload' | 'reset'>;

interface ChannelCallsDependencies {
  readonly shown: ShownChannel;
  readonly opening: Pick<ChannelOpening, 'opened' | 'renew' | 'talk'> & {
    /** Counts the uses of the channel: 1 when one begins, -1 when it ends. */
    readonly hold: (by: 1 | -1) => void;
  };
  readonly past: ChannelPast;
  readonly stop: () => Promise<void>;
}

/** The calls of a channel that send no message. */
export function channelCalls(dependencies: ChannelCallsDependencies): Calls {
  const { opening, shown } = dependencies;
  const { state } = shown;
  /** Resolves with undefined if `work` fails. The error is shown if its conversation is still open. */
  async function attempt<T>(
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
      (await attempt(async (talk) => {
        await talk.feedback({ messageId: find(id)?.metadata.messageId ?? '', verdict, comment });
        const message = find(id);
        if (message) state.replace({ ...message, metadata: { ...message.metadata, verdict } });
        return true;
      })) ?? false,
    upload: (file, given) => {
      const options = given ?? {};
      return attempt(async (talk) => {
        const blobId = await talk.upload(file, options);
        // In another conversation, the bot has no such file.
        if (talk !== opening.talk()) return undefined;
        const mediaType = file.type || 'application/octet-stream';
        return { type: 'file', mediaType, filename: file.name, url: talk.downloadUrl(file.name), blobId };
      }, options);
    },
    reset: async () => (await attempt((talk) => reset(dependencies, talk))) ?? false,
  };
}

/** Forgets all that was said in `talk`. Returns false if another conversation is open meanwhile. @throws RelayError */
async function reset(
  { shown, opening, past, stop }: ChannelCallsDependencies,
  talk: BotConversation,
): Promise<boolean> {
  await stop();
  let isRenewed = false;
  await talk.reset().catch((error) => {
    if (talk !== opening.talk()) return;
    // Without the group `chat`, nothing can be forgotten, but a new conversation can begin.
    if (!isNotEnabled(error) || !opening.renew()) throw error;
    isRenewed = true;
  });
  // Another user's messages may be there by now.
  if (!isRenewed && talk !== opening.talk()) return false;
  const opened = isRenewed ? undefined : past.forget();
  if (opened) past.begin({ ...opened, isNew: true });
  shown.pending.clear();
  shown.state.removeAll();
  return true;
}
