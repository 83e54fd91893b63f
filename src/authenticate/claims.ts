import { Problem } from '../errors.ts';
import type { User } from '../locals.ts';

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

/** Whether the claims have the required one: as their value, or among their values. */
export function isAllowed(claims: Claims, required: RequiredClaim | undefined): boolean {
  if (required === undefined) return true;
  const values = [claims[required.name]].flat();
  return values.some(
    (value) => ['string', 'number', 'boolean'].includes(typeof value) && String(value) === required.value,
  );
}
