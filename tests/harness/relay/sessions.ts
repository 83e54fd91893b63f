import { createHmac } from 'node:crypto';
import { type Session, sessionKey } from '../../../src/authenticate/sessions/session.ts';
import type { SessionStore } from '../../../src/authenticate/sessions/session-store.ts';
import { CANARY } from './relay.ts';

/** The session id in a `Cookie` header of the relay. */
export function idOf(cookie: string): string {
  const value = /bot_relay_session=([^;]+)/.exec(cookie)?.[1];
  if (value === undefined) throw new Error('there is no session cookie');
  return value.slice(0, value.indexOf('.'));
}

/** A session cookie for `id` of a relay with AUTH_MODE `mode`, signed with `secret`. */
export function signedCookie(id: string, secret: string = CANARY.sessionSecret, mode = 'password'): string {
  const signature = createHmac('sha256', `${secret} ${mode}`).update(id).digest('base64url');
  return `bot_relay_session=${id}.${signature}`;
}

/** The session of `id` in `store`; null if there is none. */
export async function stored(store: SessionStore, id: string): Promise<Session | null> {
  return (await store.get(sessionKey(id))) ?? null;
}

/** Changes the session of `id` in `store`, for example as if time had passed. */
export async function change(store: SessionStore, id: string, changes: Partial<Session>) {
  const before = await stored(store, id);
  if (!before) throw new Error('there is no such session');
  await store.set(sessionKey(id), { ...before, ...changes });
}
