import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import type { Secret } from '../../secret.ts';

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const TAG_LENGTH = { authTagLength: TAG_BYTES };
/** For how many texts random bytes are made at once: made for each text alone, they would double its cost. */
const NONCES_AT_ONCE = 256;
/** For how many scopes keys are kept: for those used last. Keys of other scopes are derived anew. */
const MAX_SCOPES = 4096;

/** Encrypts and authenticates texts and bytes with secrets (AES-256-GCM, NIST SP 800-38D). */
export interface Sealer {
  /** Encrypts `text`; returns base64url. `name` is authenticated, too: `open` needs the same one. */
  seal(text: string, name: string): string;
  /** The text in `sealed`; undefined if it was not sealed with one of the secrets for this name. */
  open(sealed: string, name: string): string | undefined;
  /** As `seal`, for bytes. */
  sealBytes(bytes: Buffer, name: string): string;
  /** As `open`, for bytes. */
  openBytes(sealed: string, name: string): Buffer | undefined;
}

/** The sealer of each scope. */
export interface ScopedSealer {
  (scope: string): Sealer;
  /** Drops the keys of this scope. They are made again if it is used once more. */
  forget(scope: string): void;
}

/**
 * Seals with the first of `secrets` and opens with all. The keys are derived from the secrets for this `purpose` only
 * (HKDF, RFC 5869).
 */
export function sealer(secrets: readonly Secret[], purpose: string): Sealer {
  return sealerWith(secrets.map((secret) => derivedKey(secret.open(), purpose)));
}

/**
 * As `sealer`, with other keys for each scope. It is for very many texts: with random nonces, one key may seal 2^32
 * (NIST SP 800-38D §8.3).
 */
export function scopedSealer(secrets: readonly Secret[], purpose: string): ScopedSealer {
  const keys = secrets.map((secret) => derivedKey(secret.open(), purpose));
  /** In the order of their last use. */
  const made = new Map<string, Sealer>();
  const sealerOf = (scope: string) => {
    const one = made.get(scope) ?? sealerWith(keys.map((key) => scopedKey(key, scope)));
    made.delete(scope);
    made.set(scope, one);
    const [oldest] = made.size > MAX_SCOPES ? made.keys() : [];
    if (oldest !== undefined) made.delete(oldest);
    return one;
  };
  return Object.assign(sealerOf, { forget: (scope: string) => void made.delete(scope) });
}

/** A key object: as bytes, a key would be made anew for each text, and a short one would take three times as long. */
function derivedKey(from: string, purpose: string): KeyObject {
  return createSecretKey(Buffer.from(hkdfSync('sha256', from, '', purpose, KEY_BYTES)));
}

/** HKDF's second step alone (RFC 5869 §2.3), since `key` is random already. */
function scopedKey(key: KeyObject, scope: string): KeyObject {
  return createSecretKey(createHmac('sha256', key).update(`${scope}\x01`).digest());
}

function sealerWith(all: readonly KeyObject[]): Sealer {
  const keys = all as [KeyObject, ...KeyObject[]];
  const sealBytes = (bytes: Buffer, name: string) => sealWith(keys[0], bytes, name);
  function openBytes(sealed: string, name: string): Buffer | undefined {
    const bytes = Buffer.from(sealed, 'base64url');
    if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
    for (const key of keys) {
      const opened = openWith(key, bytes, name);
      if (opened !== undefined) return opened;
    }
    return undefined;
  }
  return {
    ...{ sealBytes, openBytes },
    seal: (text, name) => sealBytes(Buffer.from(text), name),
    open: (sealed, name) => openBytes(sealed, name)?.toString(),
  };
}

const nonces = { bytes: Buffer.alloc(0), at: 0 };

/** Random bytes that were not used before. */
function newNonce(): Buffer {
  if (nonces.at === nonces.bytes.length) {
    nonces.bytes = randomBytes(NONCES_AT_ONCE * NONCE_BYTES);
    nonces.at = 0;
  }
  const from = nonces.at;
  nonces.at += NONCE_BYTES;
  return nonces.bytes.subarray(from, nonces.at);
}

function sealWith(key: KeyObject, bytes: Buffer, name: string): string {
  const nonce = newNonce();
  const cipher = createCipheriv(ALGORITHM, key, nonce, TAG_LENGTH);
  cipher.setAAD(Buffer.from(name));
  const sealed = Buffer.allocUnsafe(NONCE_BYTES + bytes.length + TAG_BYTES);
  sealed.set(nonce);
  // What GCM encrypts is as long as the text: `final` adds no byte.
  sealed.set(cipher.update(bytes), NONCE_BYTES);
  cipher.final();
  sealed.set(cipher.getAuthTag(), NONCE_BYTES + bytes.length);
  return sealed.toString('base64url');
}

function openWith(key: KeyObject, bytes: Buffer, name: string): Buffer | undefined {
  const nonce = bytes.subarray(0, NONCE_BYTES);
  const decipher = createDecipheriv(ALGORITHM, key, nonce, TAG_LENGTH);
  decipher.setAAD(Buffer.from(name)).setAuthTag(bytes.subarray(-TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()]);
  } catch {
    return undefined;
  }
}
