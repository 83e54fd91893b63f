import { types } from 'node:util';
import { Problem } from '../../errors.ts';

/** What the OpenID Connect and JWT libraries call an answer that came and cannot be trusted. */
const NOT_TRUSTED =
  /^(OAUTH_((JWT_CLAIM|JSON_ATTRIBUTE)_COMPARISON_FAILED|JWT_TIMESTAMP_CHECK_FAILED|INVALID_RESPONSE|UNSUPPORTED_OPERATION)|ERR_(JWT|JWS|JWE)_\w+|ERR_JOSE_(ALG_NOT_ALLOWED|NOT_SUPPORTED)|ERR_JWKS_(NO_MATCHING_KEY|MULTIPLE_MATCHING_KEYS))$/;
/** Words of the provider that say that it is its own fault, or ours, and not the user's (RFC 6749 §4.1.2.1, §5.2). */
const NOT_THE_USERS =
  /^(server_error|temporarily_unavailable|invalid_client|unauthorized_client|invalid_request|invalid_scope|unsupported_\w+)$/;
/** What may stand in the log as the one word that says why. */
const WORD = /^\w{1,64}$/;

interface LibraryError {
  readonly code?: unknown;
  readonly error?: unknown;
  readonly name?: unknown;
  readonly cause?: unknown;
}

/** The problem for what the work with the identity provider threw; its cause is one word for the log. */
export function providerProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const chain = chainOf(error);
  const cause = wordOf(chain);
  const { code, error: said } = chain[0] ?? {};
  if (said === 'access_denied') {
    const detail = 'The sign-in was cancelled, or the identity provider did not allow it.';
    return new Problem('sign_in_failed', detail, { cause });
  }
  const isRefusal = typeof said === 'string' && !NOT_THE_USERS.test(said);
  if (isRefusal || (NOT_TRUSTED.test(String(code)) && !isNoAnswer(chain))) {
    const detail = 'The answer of the identity provider was not accepted; try again.';
    return new Problem('sign_in_failed', detail, {
      cause,
      ...(isOfTokens(chain) && { level: 'warn' as const }),
    });
  }
  return providerUnavailable(cause);
}

/** The problem where the identity provider, or what it says of itself, cannot be had; `cause` is one word for the log. */
export function providerUnavailable(cause: unknown): Problem {
  return new Problem(
    'identity_provider_unavailable',
    'The identity provider does not answer as it should; try again.',
    {
      retryAfter: 5,
      cause,
    },
  );
}

/** An error, what caused it, and so on. What is no error, such as a body that came, ends the chain. */
function chainOf(error: unknown): LibraryError[] {
  const chain: LibraryError[] = [];
  for (let at = error; types.isNativeError(at) && chain.length < 8; at = at.cause) chain.push(at);
  return chain;
}

/** Whether the provider answered with JSON that is not even an object: it is broken, not the sign-in. */
function isNoAnswer(chain: readonly LibraryError[]): boolean {
  const cause = chain.at(-1)?.cause;
  if (typeof cause !== 'object' || cause === null || !('body' in cause)) return false;
  const { body } = cause;
  return typeof body !== 'object' || body === null || Array.isArray(body);
}

/**
 * Whether what is wrong is in the tokens, or in what else the provider has told the relay alone: users have no hand in
 * that, but by the code of another sign-in, which the nonce tells.
 */
function isOfTokens(chain: readonly LibraryError[]): boolean {
  const last = chain.at(-1);
  if (/^ERR_J/.test(String(last?.code))) return true;
  const seen = last?.cause;
  if (typeof seen !== 'object' || seen === null) return false;
  return (
    ['header', 'claims', 'body'].some((name) => name in seen) && !('claim' in seen && seen.claim === 'nonce')
  );
}

/** The provider's own word, the status that nobody expects, the innermost error code, or the name of the error. */
function wordOf(chain: readonly LibraryError[]): string {
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

/** The status of an answer that is not what was asked for, where that says more than what came with it. */
function statusOf(chain: readonly LibraryError[]): number | undefined {
  const { code, cause } = chain.at(-1) ?? {};
  if (!/^OAUTH_RESPONSE_IS_NOT_(CONFORM|JSON)$/.test(String(code))) return undefined;
  const { status } = cause as Response;
  return status === 200 ? undefined : status;
}

/** The provider's word where it says it in `WWW-Authenticate` alone, as it may with Basic (RFC 6749 §5.2). */
function challengeError(cause: unknown): unknown {
  if (!Array.isArray(cause)) return undefined;
  return cause.map((one) => one?.parameters?.error).find((one) => one !== undefined);
}
