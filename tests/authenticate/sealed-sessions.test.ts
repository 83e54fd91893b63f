import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session.ts';
import { expectProblem } from '../harness/clients/call.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { describeWithRedis, type RedisServer } from '../harness/redis/redis.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf } from '../harness/relay/sessions.ts';

let all: Instances;
let redis: RedisServer;
let relay: TestRelay;
let shortLived: TestRelay | undefined;
beforeAll(async () => {
  all = await startInstances({ count: 1, shared: true });
  redis = all.redis as RedisServer;
  relay = all.relays[0] as TestRelay;
});
afterEach(async () => {
  jest.restoreAllMocks();
  await shortLived?.close();
  shortLived = undefined;
});
afterAll(() => all.close());

const nameOf = (cookie: string) => `bot-relay:session:${sessionKey(idOf(cookie))}`;
const textOf = async (cookie: string) => (await redis.command('GET', nameOf(cookie))) as string;
const store = (cookie: string, text: string) => redis.command('SET', nameOf(cookie), text, 'KEEPTTL');
const shown = (cookie: string) => all.get(0, '/auth/session', cookie);
/** Expects that no route finds a session by the cookie, and that nothing reached the bot service. */
async function expectNoSession(cookie: string): Promise<void> {
  expectProblem(await shown(cookie), 401, 'unauthenticated');
  expectProblem(await all.post(0, '/auth/logout-all', cookie), 401, 'unauthenticated');
  expect((await relay.send(cookie)).status).toBe(401);
  expect(all.upstream.sockets).toHaveLength(0);
}

describeWithRedis('an attacker who can write to Redis', () => {
  test('cannot use the session of another user by copying it to the key of their own', async () => {
    const [adas, bobs] = [await relay.signIn(), await relay.signIn(OTHER_USER)];
    await store(bobs, await textOf(adas));
    await expectNoSession(bobs);
    expect(JSON.parse((await shown(adas)).body)).toMatchObject({ user: { id: 'ada' } });
    const warnings = relay.logs.filter(({ msg }) => String(msg).includes('cannot read a stored session'));
    expect(warnings).toEqual([expect.objectContaining({ level: 'warn' })]);
  });

  test('cannot use it by copying its encrypted part into their own session', async () => {
    const [adas, bobs] = [await relay.signIn(), await relay.signIn(OTHER_USER)];
    const { sealed } = JSON.parse(await textOf(adas));
    await store(bobs, JSON.stringify({ ...JSON.parse(await textOf(bobs)), sealed }));
    await expectNoSession(bobs);
  });

  test('can extend a session at most to its absolute limit', async () => {
    const limits = { idleMs: 1_200_000, absoluteMs: 1_200_000 };
    shortLived = await startRelay(all.upstream.url, { REDIS_URL: redis.url }, limits);
    const cookie = await shortLived.signIn();
    const { absoluteExpiresAt } = JSON.parse((await shown(cookie)).body);
    const never = { idleExpiresAt: 9_000_000_000_000, absoluteExpiresAt: 9_000_000_000_000 };
    const text = JSON.stringify({ ...JSON.parse(await textOf(cookie)), ...never });
    await redis.command('SET', nameOf(cookie), text);
    expect(JSON.parse((await shown(cookie)).body)).toMatchObject({ absoluteExpiresAt });
    advanceClocks({ date: Date.parse(absoluteExpiresAt) - Date.now() });
    await expectNoSession(cookie);
  });
});
