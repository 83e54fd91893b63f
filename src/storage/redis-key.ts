import { hash } from 'node:crypto';

/**
 * `text` as a part of a Redis key: 43 characters that never hold a `:`, whatever was typed, and that show neither a
 * session id nor a user's name to who lists the keys.
 */
export function keyPart(text: string): string {
  return hash('sha256', text, 'base64url');
}
