import { PROVIDER_PREFIX, USER_PREFIX } from './session-script.ts';
import type { SessionOwner } from './session-store.ts';

/** The names of the sets in Redis in which a session of this owner is. */
export function setsOf({ userId, providerSession }: SessionOwner): string[] {
  const sets = [USER_PREFIX + userId];
  if (providerSession !== undefined) sets.push(PROVIDER_PREFIX + providerSession);
  return sets;
}
