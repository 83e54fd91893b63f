import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { type Secret, secret } from '../../secret.ts';
import { SettingsError } from './settings-error.ts';

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Seals what must not be readable in the database's file, with keys that are made from SERVICE_SECRET. */
export interface Sealer {
  /** Encrypts a key (AES-256-GCM, NIST SP 800-38D). `row` names its table and row: it opens there alone. */
  seal(key: Secret, row: string): Uint8Array;
  /** @throws SettingsError if it was sealed with another secret, or for another row */
  open(sealed: Uint8Array, row: string): Secret;
  /** By which an API key is found (HMAC-SHA256): the same for the same key. */
  hash(key: string): Uint8Array;
  /** The same for the same SERVICE_SECRET, and tells nothing of it. */
  readonly mark: string;
}

/** Makes the sealer of SERVICE_SECRET. Each of its purposes has a key of its own (HKDF, RFC 5869). */
export function sealer(serviceSecret: Secret): Sealer {
  const derived = (purpose: string) =>
    createSecretKey(Buffer.from(hkdfSync('sha256', serviceSecret.open(), '', purpose, KEY_BYTES)));
  const sealing = derived('bot-relay service: sealed keys');
  const hashing = derived('bot-relay service: hashes of API keys');
  const marking = derived('bot-relay service: mark of the secret');
  return {
    seal: (key, row) => sealWith(sealing, key.open(), row),
    open: (sealed, row) => secret(openWith(sealing, sealed, row)),
    hash: (key) => createHmac('sha256', hashing).update(key).digest(),
    mark: createHmac('sha256', marking).digest('base64url'),
  };
}

function sealWith(key: KeyObject, text: string, row: string): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(Buffer.from(row));
  return Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
}

function openWith(key: KeyObject, sealed: Uint8Array, row: string): string {
  const nonce = sealed.subarray(0, NONCE_BYTES);
  try {
    const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(row)).setAuthTag(sealed.subarray(-TAG_BYTES));
    const text = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES));
    return Buffer.concat([text, decipher.final()]).toString();
  } catch {
    throw new SettingsError('A key in the database cannot be opened with SERVICE_SECRET. Enter it again.');
  }
}
