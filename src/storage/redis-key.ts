import { hash } from 'node:crypto';

/**
 * Makes a part of a Redis key from `text`: 43 characters without a `:`. It is a hash, so that a list of the keys shows
 * no session id and no user's name.
 */
export function keyPart(text: string): string {
  return hash('sha256', text, 'base64url');
}

/** So many texts are remembered. */
const MAX_REMEMBERED = 1_000;

/** Makes `keyPart` for texts that come again with each request, such as an address: it remembers them. */
export function rememberingKeyPart(): (text: string) => string {
  const parts = new Map<string, string>();
  return (text) => {
    const known = parts.get(text);
    if (known !== undefined) return known;
    if (parts.size >= MAX_REMEMBERED) parts.clear();
    const part = keyPart(text);
    parts.set(text, part);
    return part;
  };
}
