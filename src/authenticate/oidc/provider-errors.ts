import { types } from 'node:util';
import { Problem } from '../../errors.ts';

/** The error codes of the OpenID Connect and JWT libraries for an answer that cannot be trusted. */
const NOT_TRUSTED =
  /^(OAUTH_((JWT_CLAIM|JSON_ATTRIBUTE)_COMPARISON_FAILED|JWT_TIMESTAMP_CHECK_FAILED|INVALID_RESPONSE|UNSUPPORTED_OPERATION)|ERR_(JWT|JWS|JWE)_\w+|ERR_JOSE_(ALG_NOT_ALLOWED|NOT_SUPPORTED)|ERR_JWKS_(NO_MATCHING_KEY|MULTIPLE_MATCHING_KEYS))$/;
/** The provider's errors that are a fault of the provider or of the relay, not of the user (RFC 6749 §4.1.2.1, §5.2). */
const NOT_BY_USER =
  /^(server_error|temporarily_unavailable|invalid_client|unauthorized_client|invalid_request|invalid_scope|unsupported_\w+)$/;
/** What the log may show as the cause. */
const WORD = /^\w{1,64}$/;

interface LibraryError {
  readonly code?: unknown;
  readonly error?: unknown;
  readonly name?: unknown;
  readonly cause?: unknown;
}

/** The problem for an error of the work with the identity provider. The problem's cause is one word for the log. */
export function providerProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const chain = chainOf(error);
  const cause = causeOf(chain);
  const { code, error: said } = chain[0] ?? {};
  if (said === 'access_denied') {
    const detail = 'The sign-in was cancelled, or the identity provider did not allow it.';
    return new Problem('sign_in_failed', detail, { cause });
  }
  const isRefusal = typeof said === 'string' && !NOT_BY_USER.test(said);
  if (isRefusal || (NOT_TRUSTED.test(String(code)) && !isNoObject(chain))) {
    const detail = 'The answer of the identity provider was not accepted. Try again.';
    return new Problem('sign_in_failed', detail, {
      cause,
      ...(isProviderFault(chain) && { level: 'warn' as const }),
    });
  }
  return providerUnavailable(cause);
}

/** The problem if the identity provider or its metadata is not available; `cause` is one word for the log. */
export function providerUnavailable(cause: unknown): Problem {
  return new Problem(
    'identity_provider_unavailable',
    'The identity provider does not answer as it should. Try again.',
    {
      retryAfter: 5,
      cause,
    },
  );
}

/** An error, its cause, the cause of that, and so on. A cause that is not an error, such as a body, ends the chain. */
function chainOf(error: unknown): LibraryError[] {
  const chain: LibraryError[] = [];
  for (let at = error; types.isNativeError(at) && chain.length < 8; at = at.cause) chain.push(at);
  return chain;
}

/** Whether the provider answered with JSON that is not an object: then the provider has failed, not the sign-in. */
function isNoObject(chain: readonly LibraryError[]): boolean {
  const cause = chain.at(-1)?.cause;
  if (typeof cause !== 'object' || cause === null || !('body' in cause)) return false;
  const { body } = cause;
  return typeof body !== 'object' || body === null || Array.isArray(body);
}

/**
 * Whether the fault is in the tokens or in another answer that only the provider can have caused. A wrong nonce is not
 * one of them: a user can cause it with the code of another sign-in.
 */
function isProviderFault(chain: readonly LibraryError[]): boolean {
  const last = chain.at(-1);
  if (/^ERR_J/.test(String(last?.code))) return true;
  const seen = last?.cause;
  if (typeof seen !== 'object' || seen === null) return false;
  return (
    ['header', 'claims', 'body'].some((name) => name in seen) && !('claim' in seen && seen.claim === 'nonce')
  );
}

/**
 * The first that is known: the provider's own error, an unexpected status, the innermost error code, the error's name.
 */
function causeOf(chain: readonly LibraryError[]): string {
  const said = chain
    .map(({ error, cause }) => error ?? challengeError(cause))
    .find((one) => one !== undefined);
  if (said !== undefined) return /^[a-z_]{1,64}$/.test(String(said)) ? String(said) : 'other';
  const status = statusOf(chain);
  if (status !== undefined) return `HTTP_${status}`;
  const codes = chain.map(({ code }) => code).reverse();
  const names = chain.map(({ name }) => name).reverse();
  const words = [...codes, ...names].filter((one) => typeof one === 'string');
  return words.find((one) => WORD.test(one)) ?? 'unknown';
}

/** The status of an unexpected answer, where it says more than the library's error code. */
function statusOf(chain: readonly LibraryError[]): number | undefined {
  const { code, cause } = chain.at(-1) ?? {};
  if (!/^OAUTH_RESPONSE_IS_NOT_(CONFORM|JSON)$/.test(String(code))) return undefined;
  const { status } = cause as Response;
  return status === 200 ? undefined : status;
}

/** The provider's error if it stands only in `WWW-Authenticate`, as is allowed with Basic (RFC 6749 §5.2). */
function challengeError(cause: unknown): unknown {
  if (!Array.isArray(cause)) return undefined;
  return cause.map((one) => one?.parameters?.error).find((one) => one !== undefined);
}
