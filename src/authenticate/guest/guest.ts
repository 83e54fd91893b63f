import { randomUUID } from 'node:crypto';
import type { User } from '../sessions/session.ts';

/** A new anonymous user, with an id that cannot be guessed. */
export function newGuest(): User {
  return { id: `guest:${randomUUID()}`, name: 'Guest' };
}
