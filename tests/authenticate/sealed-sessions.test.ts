import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import { expectProblem } from '../support/call.ts';
import { type Instances, startInstances } from '../support/instances.ts';
import { describeWithRedis, type RedisServer } from '../support/redis.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../support/relay.ts';
import { idOf } from '../support/sessions.ts';

let all: Instances;
let redis: RedisServer;
let relay: TestRelay;
let brief: TestRelay | undefined;
beforeEach(async () => {
  all = await startInstances({ count: 1, shared: true });
  redis = all.redis as RedisServer;
  relay = all.relays[0] as TestRelay;
});
afterEach(async () => {
  await brief?.close();
  brief = undefined;
  await all.close();
});

const nameOf = (cookie: string) => `bot-relay:session:${sessionKey(idOf(cookie))}`;
const textOf = async (cookie: string) => (await redis.command('GET', nameOf(cookie))) as string;
const store = (cookie: string, text: string) => redis.command('SET', nameOf(cookie), text, 'KEEPTTL');
const shown = (cookie: string) => all.get(0, '/auth/session', cookie);
/** Expects that the cookie opens no session, for no route, and that nothing reached the bot service. */
async function expectNone(cookie: string): Promise<void> {
  expectProblem(await shown(cookie), 401, 'unauthenticated');
  expectProblem(await all.post(0, '/auth/logout-all', cookie), 401, 'unauthenticated');
  expect((await relay.send(cookie)).status).toBe(401);
  expect(all.upstream.sockets).toHaveLength(0);
}

describeWithRedis('whoever can write to Redis', () => {
  test('gets no session of another user by moving it to the key of their own', async () => {
    const [adas, bobs] = [await relay.signIn(), await relay.signIn(OTHER_USER)];
    await store(bobs, await textOf(adas));
    await expectNone(bobs);
    expect(JSON.parse((await shown(adas)).body)).toMatchObject({ user: { id: 'ada' } });
    const told = relay.logs.filter(({ msg }) => String(msg).includes('cannot be read'));
    expect(told).toEqual([expect.objectContaining({ level: 'warn' })]);
  });

  test('gets none by putting one session’s seal into the text of another', async () => {
    const [adas, bobs] = [await relay.signIn(), await relay.signIn(OTHER_USER)];
    const { sealed } = JSON.parse(await textOf(adas));
    await store(bobs, JSON.stringify({ ...JSON.parse(await textOf(bobs)), sealed }));
    await expectNone(bobs);
  });

  test('lengthens a session at most to its absolute limit', async () => {
    const limits = { idleMs: 60_000, absoluteMs: 1_500 };
    brief = await startRelay(all.upstream.url, { REDIS_URL: redis.url }, limits);
    const cookie = await brief.signIn();
    const { absoluteExpiresAt } = JSON.parse((await shown(cookie)).body);
    const never = { idleExpiresAt: 9_000_000_000_000, absoluteExpiresAt: 9_000_000_000_000 };
    const text = JSON.stringify({ ...JSON.parse(await textOf(cookie)), ...never });
    await redis.command('SET', nameOf(cookie), text);
    expect(JSON.parse((await shown(cookie)).body)).toMatchObject({ absoluteExpiresAt });
    await sleep(Date.parse(absoluteExpiresAt) - Date.now() + 5);
    await expectNone(cookie);
  });
});
