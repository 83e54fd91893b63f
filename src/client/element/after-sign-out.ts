import type { BotClient } from '../session/bot-client.ts';
import { followedSession } from '../session/followed-session.ts';

/**
 * Calls `act` when the user has signed out, here or in another tab. A session that has merely ended is no sign-out. The
 * returned function ends that.
 */
export function afterSignOut(client: BotClient, act: () => void): () => void {
  const { onDrop, getSnapshot } = followedSession(client);
  return onDrop(() =>
    // Only then it is known whether another user has signed in.
    queueMicrotask(() => {
      if (!getSnapshot().session) act();
    }),
  );
}
