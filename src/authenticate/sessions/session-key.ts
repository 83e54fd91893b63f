import { hash } from 'node:crypto';

/**
 * The key of a session, by which everything except the session cookie names it: the SHA-256 of its id, in base64url.
 * The id has 192 random bits, so it cannot be found from the key. A dump of Redis holds only keys, from which nobody can
 * make a cookie, even with the signing secrets.
 */
export function sessionKey(id: string): string {
  return hash('sha256', id, 'base64url');
}
