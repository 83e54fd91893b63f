import { createHmac } from 'node:crypto';
import type { Secret } from '../secret.ts';

/** Whose conversation it is, and the id that the client uses for it. */
export interface ChannelOwner {
  /** Where the user ids come from. */
  readonly realm: string;
  readonly userId: string;
  readonly id: string;
}

/** Names the purpose, so that the same secret and texts give another value elsewhere. */
const PURPOSE = 'bot-relay conversation 1';

/**
 * The id of a conversation at the bot service: 64 characters of `[0-9a-f]`, which no encoder escapes and no comparison
 * without case changes. It is HMAC-SHA-256 under `channelSecret` (RFC 2104), so that no user can choose another's.
 */
export function scopedChannelId(channelSecret: Secret, { realm, userId, id }: ChannelOwner): string {
  const texts = [PURPOSE, realm, userId, id];
  const all = Buffer.allocUnsafe(texts.reduce((length, text) => length + 4 + Buffer.byteLength(text), 0));
  let at = 0;
  for (const text of texts) {
    const length = all.write(text, at + 4);
    // The length before each text tells ("a", "bc") from ("ab", "c").
    all.writeUInt32BE(length, at);
    at += 4 + length;
  }
  return createHmac('sha256', channelSecret.open()).update(all).digest('hex');
}
