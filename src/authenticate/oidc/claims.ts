import { Problem } from '../../errors.ts';
import type { User } from '../sessions/session.ts';

/** The claims of the identity provider about a user (OpenID Connect Core §5.1). */
export type Claims = Readonly<Record<string, unknown>> & { readonly sub: string };

/** A claim that a user must have. */
export interface RequiredClaim {
  readonly name: string;
  readonly value: string;
}

/** Visible ASCII, with spaces inside: the operator can have the subject sent in a request header. */
const SUBJECT = /^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$/;
const MAX_NAME_LENGTH = 200;

/**
 * The user with these claims.
 * @throws Problem `sign_in_failed` if the protocol does not allow the subject
 */
export function userOf(claims: Claims): User {
  const { sub, name, preferred_username, email } = claims;
  if (typeof sub !== 'string' || !SUBJECT.test(sub)) {
    throw new Problem('sign_in_failed', 'The identity provider gave no usable id for the user.', {
      cause: 'bad_subject',
      level: 'warn',
    });
  }
  const shown = [name, preferred_username, email].find(
    (one) => typeof one === 'string' && one.trim() !== '',
  ) as string | undefined;
  return { id: sub, name: shortened((shown ?? sub).trim()) };
}

/** At most `MAX_NAME_LENGTH` UTF-16 units, without half a surrogate pair. */
function shortened(text: string): string {
  return text
    .slice(0, MAX_NAME_LENGTH)
    .replace(/[\ud800-\udbff]$/, '')
    .toWellFormed();
}

/**
 * Why the claims do not let a user in, as one word for the log; undefined if they have the required value, alone or in
 * a list. A claim that is null counts as absent (OpenID Connect Core §5.3.2).
 */
export function refusalOf(
  claims: Claims,
  required: RequiredClaim | undefined,
): 'claim_absent' | 'claim_differs' | undefined {
  if (required === undefined) return undefined;
  const { name, value: wanted } = required;
  if (!Object.hasOwn(claims, name) || claims[name] === null) return 'claim_absent';
  const isMet = [claims[name]]
    .flat()
    .some((value) => ['string', 'number', 'boolean'].includes(typeof value) && String(value) === wanted);
  return isMet ? undefined : 'claim_differs';
}
