import { hash } from 'node:crypto';

/**
 * Makes a part of a Redis key from `text`: 43 characters without a `:`. It is a hash, so that a list of the keys shows
 * no session id and no user's name.
 */
export function keyPart(text: string): string {
  return hash('sha256', text, 'base64url');
}
