import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { inFrontOf } from '../harness/relay/process.ts';
import { OTHER_USER, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

interface User {
  readonly name: string;
  readonly password: string;
}

const SERVICE = 'http://127.0.0.1:9';

afterAll(async () => {
  await stopCommands();
  stopRedis();
});

const unlock = (environment: Record<string, string>, ...args: string[]) =>
  runCommand({ args: ['user', 'unlock', ...args], environment: { ...inFrontOf(SERVICE), ...environment } });

describeWithRedis('bot-relay user unlock', () => {
  let redis: RedisServer;
  let relays: TestRelay[] = [];
  beforeAll(async () => {
    redis = await startRedis();
    const environment = { REDIS_URL: redis.url, LOGIN_MAX_FAILURES: '2' };
    relays = await Promise.all([1, 2].map(() => startRelay(SERVICE, environment)));
  });
  afterAll(() => Promise.all(relays.map((relay) => relay.close())));

  async function statusOf(relay: TestRelay, { name, password }: User): Promise<number> {
    const { status } = await call(relay.port, '/auth/login', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ username: name, password }),
    });
    return status;
  }

  /** Fails twice; then the right password does not help any more, at any instance. */
  async function lock(user: User): Promise<void> {
    for (const relay of relays) expect(await statusOf(relay, { ...user, password: 'wrong' })).toBe(401);
    for (const relay of relays) expect(await statusOf(relay, user)).toBe(429);
  }

  test('lets one locked user sign in again at every instance, and no other', async () => {
    await lock(USER);
    await lock(OTHER_USER);
    const environment = { REDIS_URL: redis.url };
    expect(await unlock(environment, 'ada')).toEqual({
      ...{ code: 0, stdout: 'The failed sign-ins of ada are forgotten.\n', stderr: '' },
    });
    for (const relay of relays) expect(await statusOf(relay, USER)).toBe(200);
    for (const relay of relays) expect(await statusOf(relay, OTHER_USER)).toBe(429);
    expect(await unlock(environment, 'ada')).toEqual({
      ...{ code: 1, stdout: 'No failed sign-ins of ada are counted.\n', stderr: '' },
    });
    // The limit goes on.
    await lock(USER);
  });
});

describe('bot-relay user unlock', () => {
  test('says without Redis that a restart does it', async () => {
    expect(await unlock({}, 'ada')).toEqual({
      code: 1,
      stdout:
        'Without REDIS_URL each relay counts failed sign-ins in its own memory: restart it to unlock ada.\n',
      stderr: '',
    });
  });

  test('says that Redis does not answer', async () => {
    expect(await unlock({ REDIS_URL: 'redis://127.0.0.1:9' }, 'ada')).toEqual({
      ...{ code: 1, stdout: 'Redis cannot be used; npx bot-relay check says why.\n', stderr: '' },
    });
  });

  test.each([[[]], [['ada', 'bob']]])('prints its usage for the names %j', async (names) => {
    const { code, stdout } = await unlock({}, ...names);
    expect([code, stdout]).toEqual([64, expect.stringMatching(/^Usage: bot-relay user add/)]);
  });
});
