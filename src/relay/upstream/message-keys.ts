import { Problem } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import type { Secret } from '../../secret.ts';
import type { KeyRing } from './key-ring.ts';

/** The keys with which one message is sent. One that this message has seen refused is not tried again. */
export interface MessageKeys {
  /** The key for the next attempt; to be asked while there is one to try. */
  next(): Secret;
  /** The service has taken that key. */
  accepted(): void;
  /** The service has refused that key. Returns whether there is another one to try. */
  refused(): boolean;
}

/** Takes keys from `ring` and tells it what the service said to them; the log hears what is news. */
export function messageKeys(ring: KeyRing, logger: Logger, requestId: string): MessageKeys {
  const untried = [...ring.order()];
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
      untried.shift();
      ring.refused(key);
      logger.warn({ requestId, ...about(key) }, 'upstream key rejected');
      return untried.length > 0;
    },
  };
}

/** What a client is told when the service has refused every key. */
export function keysRefused(): Problem {
  return new Problem('upstream_key_rejected', 'The bot service did not accept the relay; tell its operator.');
}
