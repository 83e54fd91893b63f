import { randomUUID } from 'node:crypto';
import type { User } from '../sessions/session.ts';

/** An anonymous visitor, whose id nobody can guess. */
export function newGuest(): User {
  return { id: `guest:${randomUUID()}`, name: 'Guest' };
}
