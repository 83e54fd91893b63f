import { createHmac } from 'node:crypto';
import type { SessionData } from 'express-session';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { CANARY } from './relay.ts';

/** The session id in a `Cookie` header of the relay. */
export function idOf(cookie: string): string {
  const value = /bot_relay_session=([^;]+)/.exec(cookie)?.[1];
  if (value === undefined) throw new Error('there is no session cookie');
  return decodeURIComponent(value).slice('s:'.length, 's:'.length + 32);
}

/** A session cookie for `id` of a relay with AUTH_MODE `mode`, signed with `secret` as express-session signs it. */
export function signedCookie(id: string, secret: string = CANARY.sessionSecret, mode = 'password'): string {
  const signature = createHmac('sha256', `${secret} ${mode}`).update(id).digest('base64').replace(/=+$/, '');
  return `bot_relay_session=${encodeURIComponent(`s:${id}.${signature}`)}`;
}

/** What `store` holds for `id`; null if nothing. */
export function stored(store: SessionStore, id: string): Promise<SessionData | null> {
  return new Promise((resolve, reject) =>
    store.get(id, (error, data) => (error ? reject(error) : resolve(data ?? null))),
  );
}

/** Changes what `store` holds for `id`, as if time had passed. */
export async function change(store: SessionStore, id: string, changes: Partial<SessionData>) {
  const changed = { ...(await stored(store, id)), ...changes } as SessionData;
  await new Promise((resolve) => store.set(id, changed, resolve));
}
