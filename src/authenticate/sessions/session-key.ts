import { hash } from 'node:crypto';

/**
 * The name by which everything but the session cookie calls a session: the SHA-256 of its id, in base64url. The
 * id has 192 random bits, so nobody gets from the name to it: names may lie in Redis and be published there. A
 * dump of Redis then holds nothing that goes into a cookie, even for somebody who also has the signing secrets.
 */
export function sessionKey(id: string): string {
  return hash('sha256', id, 'base64url');
}
