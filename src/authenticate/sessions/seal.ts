import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import type { Secret } from '../../secret.ts';

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Makes texts unreadable and unchangeable for whoever has none of the secrets (AES-256-GCM, NIST SP 800-38D). */
export interface Sealer {
  /** `text` sealed, in base64url, so that it opens only with the same `name`. */
  seal(text: string, name: string): string;
  /** What was sealed; undefined if it was not sealed with one of the secrets, for this name. */
  open(sealed: string, name: string): string | undefined;
}

/**
 * Seals with the first of `secrets` and opens with all. `purpose` keeps the keys apart from those that are derived from
 * the same secrets for something else (HKDF, RFC 5869).
 */
export function sealer(secrets: readonly Secret[], purpose: string): Sealer {
  const keys = secrets.map((secret) =>
    Buffer.from(hkdfSync('sha256', secret.open(), '', purpose, KEY_BYTES)),
  ) as [Buffer, ...Buffer[]];
  return {
    seal(text, name) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(ALGORITHM, keys[0], nonce, { authTagLength: TAG_BYTES });
      cipher.setAAD(Buffer.from(name));
      const sealed = [nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()];
      return Buffer.concat(sealed).toString('base64url');
    },
    open(sealed, name) {
      const bytes = Buffer.from(sealed, 'base64url');
      if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
      for (const key of keys) {
        const text = openWith(key, bytes, name);
        if (text !== undefined) return text;
      }
      return undefined;
    },
  };
}

function openWith(key: Buffer, bytes: Buffer, name: string): string | undefined {
  const nonce = bytes.subarray(0, NONCE_BYTES);
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.from(name)).setAuthTag(bytes.subarray(-TAG_BYTES));
  try {
    return (
      decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8')
    );
  } catch {
    return undefined;
  }
}
