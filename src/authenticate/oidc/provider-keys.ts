import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from 'jose';
import type { Fetch } from './bounded-fetch.ts';
import { paced } from './paced.ts';

/** How long the keys are believed, in ms: what a key signs that the provider has taken away is refused after that. */
const MAX_AGE_MS = 600_000;
/** How often they are asked for at most, in ms. */
const PACE_MS = 1_000;

export interface ProviderKeysOptions {
  readonly fetch: Fetch;
  readonly timeoutMs: number;
}

/**
 * The keys with which the provider signs (RFC 7517), from `url`. A key that is not known is looked for there once
 * more: at once, or, if they were asked for just now, as soon as they may be again. So the first token of a new key
 * is accepted, and nobody makes the relay ask for keys all the time by sending tokens of keys that do not exist.
 * Throws an error with the code `KEYS_UNAVAILABLE` if they cannot be had, and `ERR_JWKS_NO_MATCHING_KEY` of `jose` if
 * the one that is meant is not among them.
 */
export function providerKeys(url: URL, { fetch, timeoutMs }: ProviderKeysOptions): JWTVerifyGetKey {
  const keys = createRemoteJWKSet(url, {
    cacheMaxAge: MAX_AGE_MS,
    timeoutDuration: timeoutMs,
    // The library would refuse an unknown key while it cools down; here its token waits instead.
    cooldownDuration: Number.POSITIVE_INFINITY,
    [customFetch]: fetch,
  });
  const reload = paced(
    () =>
      keys.reload().catch((cause: unknown) => {
        throw Object.assign(new Error('no keys', { cause }), { code: 'KEYS_UNAVAILABLE' });
      }),
    PACE_MS,
  );

  return async function keyOf(header, token) {
    if (!keys.fresh) await reload();
    try {
      return await keys(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
    }
    await reload();
    return keys(header, token);
  };
}
