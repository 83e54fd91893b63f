import { Problem } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import type { Secret } from '../../secret.ts';
import type { KeyRing } from './key-ring.ts';

/** The keys that one request, be it a message or not, may try. A key that was refused for it is not tried again. */
export interface MessageKeys {
  /** The key for the next sending. Call it only while there is a key to try. */
  next(): Secret;
  /** The service has accepted that key. A key that it answered with 403 before is refused, for all requests. */
  accepted(): void;
  /**
   * The service has answered that key with 401, which refuses it for all requests, or with 403, which may be about the
   * request: then one other key is tried. `problem` says which, by its status. Returns the problem of the request if
   * there is no other key to try.
   */
  refused(problem: Problem): Problem | undefined;
}

/** Takes keys from `ring`, and reports to it and to the log whether the service accepted or refused them. */
export function messageKeys(ring: KeyRing, logger: Logger, requestId: string): MessageKeys {
  let untried = ring.order();
  let forbidden: { readonly key: Secret; readonly problem: Problem } | undefined;
  const about = (key: Secret) => ({ keyRing: ring.name, keyFingerprint: key.fingerprint });
  function next(): Secret {
    const [key] = untried;
    if (!key) throw new Error(`no key of ${ring.name} is left to try`);
    return key;
  }
  function reject(key: Secret): void {
    ring.refused(key);
    logger.warn({ requestId, ...about(key) }, 'upstream key rejected');
  }
  return {
    next,
    accepted() {
      if (forbidden) reject(forbidden.key);
      const key = next();
      if (ring.worked(key)) logger.info(about(key), 'upstream key accepted');
    },
    refused(problem) {
      const key = next();
      untried = untried.slice(1);
      const isOver = forbidden !== undefined || untried.length === 0;
      if (problem.status !== 403) reject(key);
      else forbidden ??= { key, problem };
      return isOver ? (forbidden?.problem ?? problem) : undefined;
    },
  };
}

/** The problem for a client whose request was refused with 401 for every key that it could try. */
export function keysRefused(): Problem {
  return new Problem('upstream_key_rejected', 'The bot service did not accept the relay; tell the operator.');
}

/** The problem of a request that was answered with 401 or 403, without the answer's body. */
export function keyRefusal(status: number): Problem {
  if (status === 401) return keysRefused();
  return new Problem('upstream_refused', `The bot service refused the request with status ${status}.`, {
    status,
  });
}
