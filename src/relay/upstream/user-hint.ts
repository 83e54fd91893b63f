import { hash } from 'node:crypto';

/** What the bot service takes, and a header can carry: up to 128 characters of visible ASCII (RFC 9110 §5.5). */
const FITS = /^[\x21-\x7e]{1,128}$/;

/**
 * The header `name`, in lower case, with which the bot service learns the user; none if `name` is undefined. Its value
 * is the user id as it is, or the SHA-256 of the id in hex if the id does not fit.
 */
export function userHintHeader(name: string | undefined, userId: string): Record<string, string> {
  if (name === undefined) return {};
  return { [name.toLowerCase()]: FITS.test(userId) ? userId : hash('sha256', userId, 'hex') };
}
