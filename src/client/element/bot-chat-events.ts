import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import type { BotClient } from '../session/bot-client.ts';
import { followedSession } from '../session/followed-session.ts';
import type { Session } from '../session/session-tracker.ts';

/** The events that the element dispatches, beside those of every element. All of them bubble. */
export interface BotChatEventMap extends HTMLElementEventMap {
  /** It is known who is signed in; `session` is null if nobody is. */
  'bot-ready': CustomEvent<{ readonly session: Session | null }>;
  /** Something has failed. The element shows it, too. */
  'bot-error': CustomEvent<Error>;
  /** The session is over. */
  'bot-signed-out': CustomEvent<undefined>;
}

/**
 * Calls `act` when the user has signed out, here or in another tab, and not when the session has ended by itself. The
 * returned function ends that.
 */
export function afterSignOut(client: BotClient, act: () => void): () => void {
  const { onDrop, getSnapshot } = followedSession(client);
  return onDrop(() =>
    // In a microtask, since only then it is known whether another user has signed in.
    queueMicrotask(() => {
      if (!getSnapshot().session) act();
    }),
  );
}

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
