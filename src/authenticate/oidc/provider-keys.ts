import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from 'jose';
import { type Fetch, throttled } from './provider-fetch.ts';

/** How long the keys are used, in ms. After that, tokens of a key that the provider has withdrawn are refused. */
const MAX_AGE_MS = 600_000;
/** The usual `minIntervalMs`. */
const MIN_INTERVAL_MS = 1_000;

export interface ProviderKeysOptions {
  readonly fetch: Fetch;
  readonly timeoutMs: number;
  /** The shortest time between two requests for the keys, in ms. */
  readonly minIntervalMs?: number;
}

/**
 * The keys with which the provider signs (RFC 7517), from `url`. For an unknown key they are fetched again, at most once
 * in `minIntervalMs`: the token waits for that. So the first token of a new key is accepted, and tokens of keys that do
 * not exist cannot make the relay send many requests.
 * Throws an error with the code `KEYS_UNAVAILABLE` if the keys cannot be fetched, and `ERR_JWKS_NO_MATCHING_KEY` of
 * `jose` if the key of the token is not among them.
 */
export function providerKeys(
  url: URL,
  { fetch, timeoutMs, minIntervalMs = MIN_INTERVAL_MS }: ProviderKeysOptions,
): JWTVerifyGetKey {
  const keys = createRemoteJWKSet(url, {
    cacheMaxAge: MAX_AGE_MS,
    timeoutDuration: timeoutMs,
    // During a cooldown the library would refuse an unknown key. Here the token waits for `reload`.
    cooldownDuration: Number.POSITIVE_INFINITY,
    [customFetch]: fetch,
  });
  const reload = throttled(
    () =>
      keys.reload().catch((cause: unknown) => {
        throw Object.assign(new Error('no keys', { cause }), { code: 'KEYS_UNAVAILABLE' });
      }),
    minIntervalMs,
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
