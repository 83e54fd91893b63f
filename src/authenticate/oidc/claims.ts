import { Problem } from '../../errors.ts';
import type { User } from '../sessions/session.ts';

/** What the identity provider says of a user (OpenID Connect Core §5.1). */
export type Claims = Readonly<Record<string, unknown>> & { readonly sub: string };

/** A claim that a user must have. */
export interface RequiredClaim {
  readonly name: string;
  readonly value: string;
}

/** The subject goes into a request header, if the operator wants it there: visible ASCII, with spaces within. */
const SUBJECT = /^[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?$/;
const MAX_NAME_LENGTH = 200;

/**
 * The user whose claims these are.
 * @throws Problem `sign_in_failed` if the subject is not one that the protocol allows
 */
export function userOf(claims: Claims): User {
  const { sub, name, preferred_username, email } = claims;
  if (typeof sub !== 'string' || !SUBJECT.test(sub)) {
    throw new Problem('sign_in_failed', 'The identity provider gave no usable name for the user.', {
      cause: 'bad_subject',
      level: 'warn',
    });
  }
  const shown = [name, preferred_username, email].find(
    (one) => typeof one === 'string' && one.trim() !== '',
  ) as string | undefined;
  return { id: sub, name: shortened((shown ?? sub).trim()) };
}

/** At most `MAX_NAME_LENGTH` UTF-16 units, and no half of a character among them. */
function shortened(text: string): string {
  return text
    .slice(0, MAX_NAME_LENGTH)
    .replace(/[\ud800-\udbff]$/, '')
    .toWellFormed();
}

/**
 * Why the claims do not let a user in, as one word for the log; undefined if they have the required one, as their
 * value or among their values. Null is as absent as what is not there (OpenID Connect Core §5.3.2).
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
