import { Problem } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import type { Secret } from '../../secret.ts';
import type { KeyRing } from './key-ring.ts';

/** The keys that one message may try. A key that was refused for this message is not tried again. */
export interface MessageKeys {
  /** The key for the next sending. Call it only while there is a key to try. */
  next(): Secret;
  /** The service has accepted that key. */
  accepted(): void;
  /** The service has refused that key, for all requests. Returns whether there is another one to try. */
  refused(): boolean;
  /**
   * The service has refused this key or this request. This request tries the next key; other requests keep this one.
   * Returns as `refused`.
   */
  maybeRefused(): boolean;
}

/** Takes keys from `ring`, and reports to it and to the log whether the service accepted or refused them. */
export function messageKeys(ring: KeyRing, logger: Logger, requestId: string): MessageKeys {
  let untried = ring.order();
  const about = (key: Secret) => ({ keyRing: ring.name, keyFingerprint: key.fingerprint });
  function next(): Secret {
    const [key] = untried;
    if (!key) throw new Error(`no key of ${ring.name} is left to try`);
    return key;
  }
  return {
    next,
    accepted() {
      const key = next();
      if (ring.worked(key)) logger.info(about(key), 'upstream key accepted');
    },
    refused() {
      const key = next();
      untried = untried.slice(1);
      ring.refused(key);
      logger.warn({ requestId, ...about(key) }, 'upstream key rejected');
      return untried.length > 0;
    },
    maybeRefused() {
      untried = untried.slice(1);
      return untried.length > 0;
    },
  };
}

/** The problem for a client whose request was refused with every key that it could try. */
export function keysRefused(): Problem {
  return new Problem('upstream_key_rejected', 'The bot service did not accept the relay; tell the operator.');
}
