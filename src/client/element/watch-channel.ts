import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';

/** Calls `say` with the events of the element, as the channel changes. The returned function ends that. */
export function watchChannel(channel: Channel, say: (name: string, detail: unknown) => void): () => void {
  let before: Partial<ChannelSnapshot> = {};
  function look(): void {
    const now = channel.getSnapshot();
    const { session: had, error: known } = before;
    before = now;
    if (had === undefined && now.session !== undefined) say('bot-ready', { session: now.session });
    if (had && now.session === null) say('bot-signed-out', undefined);
    if (now.error && now.error !== known) say('bot-error', now.error);
  }
  const end = channel.subscribe(look);
  look();
  return end;
}
