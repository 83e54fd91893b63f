import type { ChannelSnapshot } from '../channel/channel-types.ts';
import type { ChatDependencies } from './chat-dependencies.ts';

/** Keeps what is written in `text` over a reload, and brings it back. */
export function draftKeeper(
  { channel, drafts }: Pick<ChatDependencies, 'channel' | 'drafts'>,
  text: HTMLTextAreaElement,
) {
  let user: string | undefined;
  let chat: string | undefined;
  const keep = () => {
    if (user !== undefined && chat !== undefined) drafts?.keep(chat, text.value);
  };
  text.addEventListener('input', keep);
  return {
    /** Keeps what is written now. */
    keep,
    /** Another chat may be open. An empty field gets its draft; what is written goes with the user. */
    update({ session }: ChannelSnapshot): void {
      const next = session?.user.id;
      if (next === user && channel.id === chat) return;
      const isMoved = next === user && text.value !== '' && chat !== undefined;
      if (isMoved && chat) drafts?.keep(chat, '');
      [user, chat] = [next, channel.id];
      if (user === undefined || chat === undefined) return;
      if (text.value === '') text.value = drafts?.of(chat) ?? '';
      else keep();
    },
  };
}
