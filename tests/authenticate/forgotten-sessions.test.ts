import { afterEach, expect, test } from '@jest/globals';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { sealer } from '../../src/authenticate/sessions/seal.ts';
import { startSession } from '../../src/authenticate/sessions/session.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { until } from '../harness/clock/until.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';

const LIMITS = { idleMs: 60_000, absoluteMs: 120_000 };

let redis: Redis;
afterEach(() => {
  redis.close();
  stopRedis();
});

/** Two stores on one Redis, and what each has forgotten of its decrypted sessions. */
async function stores(): Promise<[SessionStore, SessionStore, string[][]]> {
  redis = await connected((await startRedis()).url);
  const forgotten: string[][] = [[], []];
  const [one, other] = forgotten.map((keys) => {
    const real = sessionCodec(sealer([secret('the secret of the sessions’ test')], 'sessions'));
    const codec = { ...real, forget: (key: string) => void keys.push(key) };
    return redisSessionStore({ redis, codec, logger: createLogger('silent'), absoluteMs: LIMITS.absoluteMs });
  });
  return [one as SessionStore, other as SessionStore, forgotten];
}

async function stored(store: SessionStore, key: string): Promise<void> {
  const owner = { userId: 'ada', providerSession: undefined };
  const session = startSession({ id: 'ada', name: 'Ada' }, LIMITS, Date.now());
  await store.set(key, { ...session, startedAt: await store.startTime(owner) });
}

describeWithRedis('a decrypted session in memory', () => {
  test('is forgotten by the instance that removes it', async () => {
    const [store, , forgotten] = await stores();
    await stored(store, 'key');
    await store.remove('key');
    expect(forgotten).toEqual([['key'], []]);
  });

  test.each([
    ['it', (store: SessionStore) => store.remove('key')],
    ['all of its user', (store: SessionStore) => store.removeUser('ada')],
  ])('is forgotten by another instance that hears of the removal of %s', async (_what, remove) => {
    const [store, other, forgotten] = await stores();
    await stored(store, 'key');
    await new Promise<void>((missed) => other.listen({ removed() {}, missed }));
    await remove(store);
    await until(() => forgotten[1]?.includes('key') === true);
  });
});
