import { Problem } from '../errors.ts';

/** What the OpenID Connect and JWT libraries call an answer that came and cannot be trusted. */
const NOT_TRUSTED =
  /^(OAUTH_(JWT_CLAIM_COMPARISON_FAILED|JWT_TIMESTAMP_CHECK_FAILED|INVALID_RESPONSE|UNSUPPORTED_OPERATION)|ERR_(JWT|JWS|JWE)_\w+|ERR_JOSE_(ALG_NOT_ALLOWED|NOT_SUPPORTED)|ERR_JWKS_(NO_MATCHING_KEY|MULTIPLE_MATCHING_KEYS))$/;
/** Words of the provider that say that it is its own fault, or ours, and not the user's (RFC 6749 §4.1.2.1, §5.2). */
const NOT_THE_USERS =
  /^(server_error|temporarily_unavailable|invalid_client|unauthorized_client|invalid_request|invalid_scope|unsupported_\w+)$/;

interface LibraryError {
  readonly code?: unknown;
  readonly error?: unknown;
  readonly name?: unknown;
  readonly cause?: unknown;
}

/** The problem for what the work with the identity provider threw; its cause is one word for the log. */
export function providerProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const cause = wordOf(error);
  const { code, error: said } = (error ?? {}) as LibraryError;
  if (said === 'access_denied') {
    return new Problem('sign_in_failed', 'The sign-in was cancelled.', { cause });
  }
  const isRefusal = typeof said === 'string' && !NOT_THE_USERS.test(said);
  if (isRefusal || NOT_TRUSTED.test(String(code))) {
    return new Problem('sign_in_failed', 'The sign-in did not come to its end; try again.', { cause });
  }
  return new Problem('identity_provider_unavailable', 'Nobody can sign in right now; try again.', {
    retryAfter: 5,
    cause,
  });
}

/** The provider's own word, the innermost error code, or the name of the error. */
function wordOf(error: unknown): string {
  const { code, error: said, name, cause } = (error ?? {}) as LibraryError;
  if (typeof said === 'string') return /^[a-z_]{1,64}$/.test(said) ? said : 'other';
  const challenged = challengeError(cause);
  if (challenged !== undefined) return wordOf({ error: challenged });
  if (typeof cause === 'object' && cause !== null && 'code' in cause) return wordOf(cause);
  return (
    ([code, name].find((one) => typeof one === 'string' && /^\w{1,64}$/.test(one)) as string) ?? 'unknown'
  );
}

/** The provider's word where it says it in `WWW-Authenticate` alone, as it may with Basic (RFC 6749 §5.2). */
function challengeError(cause: unknown): unknown {
  if (!Array.isArray(cause)) return undefined;
  return cause.map((one) => one?.parameters?.error).find((one) => one !== undefined);
}
