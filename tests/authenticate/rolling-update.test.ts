import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import { call, expectProblem } from '../support/call.ts';
import { type Instances, startInstances } from '../support/instances.ts';
import { LAST_CHUNK } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer } from '../support/redis.ts';
import { CANARY, OTHER_USER, type TestRelay, USER } from '../support/relay.ts';
import { idOf, signedCookie } from '../support/sessions.ts';

const MINUTE = 60_000;
const UNTIL_IDLE_MS = 10 * MINUTE;

/** A session that began at an instance of version 0.1. */
interface OldSession {
  readonly cookie: string;
  readonly key: string;
  /** The text that version 0.1 has stored. */
  readonly data: { readonly idleExpiresAt: number; readonly absoluteExpiresAt: number };
}

let all: Instances;
let redis: RedisServer;
beforeEach(async () => {
  all = await startInstances({ count: 1, shared: true });
  redis = all.redis as RedisServer;
});
afterEach(() => all.close());

let ids = 0;
/** Stores a session as version 0.1 did: its text, and its key in the set of its user. */
async function oldSession(user = 'ada'): Promise<OldSession> {
  const id = `id-of-version-0-1-${++ids}`.padEnd(32, 'x');
  const [key, idleExpiresAt] = [sessionKey(id), Date.now() + UNTIL_IDLE_MS];
  const data = {
    v: 1,
    idleExpiresAt,
    user: { id: user, name: user },
    absoluteExpiresAt: Date.now() + 400 * MINUTE,
  };
  const name = `bot-relay:session:${key}`;
  await redis.command('SET', name, JSON.stringify(data), 'PX', String(UNTIL_IDLE_MS));
  await redis.command('ZADD', setOf(user), String(idleExpiresAt), key);
  return { cookie: signedCookie(id), key, data };
}

const setOf = (user: string) => `bot-relay:user-sessions:${user}`;
const textOf = async (key: string) => (await redis.command('GET', `bot-relay:session:${key}`)) as string;
const shown = (cookie: string) => all.get(0, '/auth/session', cookie);
const statuses = async (...sessions: { cookie: string }[]) =>
  Promise.all(sessions.map(async ({ cookie }) => (await shown(cookie)).status));
/** Signs in at the new instance; returns the `Cookie` header to send. */
async function signIn({ name, password } = USER, before = ''): Promise<string> {
  const { headers } = await call((all.relays[0] as TestRelay).port, '/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie: before },
    body: JSON.stringify({ username: name, password }),
  });
  return headers['set-cookie']?.[0]?.split(';', 1)[0] as string;
}

describeWithRedis('a session of version 0.1, at an instance of this version', () => {
  test('stays valid with its cookie', async () => {
    const { cookie, data } = await oldSession();
    const answer = await shown(cookie);
    expect(answer.status).toBe(200);
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(JSON.parse(answer.body)).toEqual({
      user: { id: 'ada', name: 'ada' },
      idleExpiresAt: new Date(data.idleExpiresAt).toISOString(),
      absoluteExpiresAt: new Date(data.absoluteExpiresAt).toISOString(),
    });
  });

  test('is extended by a message in its old form, so that instances of both versions read it', async () => {
    const { cookie, key, data } = await oldSession();
    const stream = await all.stream(0, cookie);
    stream.upstream.write(LAST_CHUNK);
    expect(await stream.over()).toMatchObject({ complete: true });
    const text = await textOf(key);
    const { idleExpiresAt, ...rest } = JSON.parse(text);
    const { idleExpiresAt: before, ...kept } = data;
    expect(rest).toEqual(kept);
    expect(idleExpiresAt).toBeGreaterThan(before + 19 * MINUTE);
    // The pattern by which the script of version 0.1 finds it.
    expect(text.startsWith(`{"v":1,"idleExpiresAt":${idleExpiresAt},`)).toBe(true);
    expect(await redis.command('ZRANGE', setOf('ada'), '0', '-1')).toEqual([key]);
    expect(Number(await redis.command('PTTL', `bot-relay:session:${key}`))).toBeGreaterThan(29 * MINUTE);
    expect(await statuses({ cookie })).toEqual([200]);
  });

  test('ends by logout, and so do its streams', async () => {
    const { cookie, key } = await oldSession();
    const other = await oldSession();
    const stream = await all.stream(0, cookie);
    const answer = await all.post(0, '/auth/logout', cookie);
    expect(answer.status).toBe(204);
    expect(answer.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;/);
    expect(await stream.over()).toMatchObject({ code: 'session_ended' });
    expectProblem(await shown(cookie), 401, 'unauthenticated');
    expect(await textOf(key)).toBe('removed');
    expect(await statuses(other)).toEqual([200]);
  });

  test('ends by logout-all of its user in a session of either version, and sessions of other users stay', async () => {
    for (const whoAsks of ['old', 'new'] as const) {
      const [old, another, bobs] = [await oldSession(), await oldSession(), await oldSession('bob')];
      const [adasNew, bobsNew] = [{ cookie: await signIn() }, { cookie: await signIn(OTHER_USER) }];
      const asking = whoAsks === 'old' ? old : adasNew;
      expect(await statuses(old, another, adasNew, bobs, bobsNew)).toEqual([200, 200, 200, 200, 200]);
      expect((await all.post(0, '/auth/logout-all', asking.cookie)).status).toBe(204);
      expect(await statuses(old, another, adasNew, bobs, bobsNew)).toEqual([401, 401, 401, 200, 200]);
    }
  });

  test('ends when its user signs in again, and the new session is encrypted', async () => {
    const { cookie, key } = await oldSession();
    const fresh = await signIn(USER, cookie);
    expect(idOf(fresh)).not.toBe(idOf(cookie));
    expect(await statuses({ cookie }, { cookie: fresh })).toEqual([401, 200]);
    expect(await textOf(key)).toBe('removed');
    expect(JSON.parse(await textOf(sessionKey(idOf(fresh))))).toEqual({
      v: 2,
      idleExpiresAt: expect.any(Number),
      sets: [setOf('ada')],
      sealed: expect.stringMatching(/^[\w-]{100,}$/),
    });
  });

  test('is not opened by a cookie that is signed with another secret', async () => {
    const { cookie } = await oldSession();
    const forged = signedCookie(idOf(cookie), `${CANARY.sessionSecret}x`);
    expect(await statuses({ cookie: forged }, { cookie })).toEqual([401, 200]);
  });
});
