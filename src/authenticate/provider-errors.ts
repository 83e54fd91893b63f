import { Problem } from '../errors.ts';

/** What the OpenID Connect and JWT libraries call an answer that came and cannot be trusted. */
const NOT_TRUSTED =
  /^(OAUTH_((JWT_CLAIM|JSON_ATTRIBUTE)_COMPARISON_FAILED|JWT_TIMESTAMP_CHECK_FAILED|INVALID_RESPONSE|UNSUPPORTED_OPERATION)|ERR_(JWT|JWS|JWE|JOSE)_\w+|ERR_JWKS_(NO_MATCHING_KEY|MULTIPLE_MATCHING_KEYS))$/;
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
  const { code, error: said } = error as LibraryError;
  if (said === 'access_denied') {
    return new Problem('sign_in_failed', 'The sign-in was cancelled.', { cause });
  }
  const isRefusal = typeof said === 'string' && !NOT_THE_USERS.test(said);
  if (isRefusal || NOT_TRUSTED.test(String(code))) {
    return new Problem('sign_in_failed', 'The sign-in did not come to its end; try again.', { cause });
  }
  return providerUnavailable(cause);
}

/** The problem where the identity provider, or what it says of itself, cannot be had; `cause` is one word for the log. */
export function providerUnavailable(cause: unknown): Problem {
  return new Problem('identity_provider_unavailable', 'Nobody can sign in right now; try again.', {
    retryAfter: 5,
    cause,
  });
}

/** The provider's own word, the innermost error code, or the name of the error. */
function wordOf(error: unknown): string {
  const { error: said, name } = (error ?? {}) as LibraryError;
  if (typeof said === 'string') return /^[a-z_]{1,64}$/.test(said) ? said : 'other';
  return innermostCode(error) ?? (typeof name === 'string' ? name : 'unknown');
}

function innermostCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, cause } = error as LibraryError;
  return innermostCode(cause) ?? (typeof code === 'string' ? code : undefined);
}
