import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { call, expectProblem } from '../support/call.ts';
import { type Instances, startInstances } from '../support/instances.ts';
import { type RawClient, rawClient } from '../support/raw-client.ts';
import { LAST_CHUNK } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer } from '../support/redis.ts';
import { CANARY, type TestRelay, USER } from '../support/relay.ts';
import { idOf, signedCookie } from '../support/sessions.ts';
import { sleep } from '../support/sleep.ts';

const OLD = CANARY.sessionSecret;
const NEW = 'canary-new-session-secret-abcdef-9876543210';

let all: Instances | undefined;
afterEach(async () => {
  await all?.close();
  all = undefined;
});

const start = async (...secrets: string[]) => {
  const environment = secrets.map((SESSION_SECRETS) => ({ SESSION_SECRETS }));
  all = await startInstances({ count: secrets.length, shared: true, environment });
  return all;
};
const signIn = (at: number) => ((all as Instances).relays[at] as TestRelay).signIn();
const status = async (at: number, cookie: string) => (await all?.get(at, '/auth/session', cookie))?.status;

describeWithRedis('sessions of several instances', () => {
  test('are valid at each instance, and end at each when one signs out', async () => {
    const { stream, get, post } = await start(OLD, OLD);
    const cookie = await signIn(0);
    const shown = await get(0, '/auth/session', cookie);
    expect(await get(1, '/auth/session', cookie)).toMatchObject({ status: 200, body: shown.body });
    (await stream(1, cookie)).upstream.write(LAST_CHUNK);
    // A message at one instance extends the session at the other one, too.
    const extended = JSON.parse((await get(0, '/auth/session', cookie)).body);
    const before = JSON.parse(shown.body);
    expect(Date.parse(extended.idleExpiresAt)).toBeGreaterThan(Date.parse(before.idleExpiresAt));
    expect(extended.absoluteExpiresAt).toBe(before.absoluteExpiresAt);
    expect((await post(1, '/auth/logout', cookie)).status).toBe(204);
    expectProblem(await get(0, '/auth/session', cookie), 401, 'unauthenticated');
    expectProblem(await post(0, '/auth/logout', cookie), 401, 'unauthenticated');
  });

  test('stay valid while the secrets are rotated, one instance after the other', async () => {
    await start(OLD, `${OLD},${NEW}`, `${NEW},${OLD}`, NEW);
    const [ofOld, ofBoth, ofNew] = await Promise.all([signIn(0), signIn(1), signIn(2)]);
    for (const [cookie, secret] of [
      [ofOld, OLD],
      [ofBoth, OLD],
      [ofNew, NEW],
    ] as const) {
      expect(decodeURIComponent(cookie)).toBe(decodeURIComponent(signedCookie(idOf(cookie), secret)));
    }
    const seen = (cookie: string) => Promise.all([0, 1, 2, 3].map((at) => status(at, cookie)));
    // Instances before and after each step of the rotation can read each other's cookies.
    expect(await seen(ofOld)).toEqual([200, 200, 200, 401]);
    expect(await seen(ofBoth)).toEqual([200, 200, 200, 401]);
    expect(await seen(ofNew)).toEqual([401, 200, 200, 200]);
  });
});

describeWithRedis('the commands to Redis for a session', () => {
  let redis: RedisServer;
  let cookie: string;
  let monitor: RawClient;
  beforeEach(async () => {
    ({ redis } = (await start(OLD)) as Instances & { redis: RedisServer });
    cookie = await signIn(0);
    // From now on Redis has loaded the scripts.
    (await (all as Instances).stream(0, cookie)).upstream.write(LAST_CHUNK);
    monitor = rawClient(Number(new URL(redis.url).port), 'MONITOR\r\n');
    await monitor.waitFor('+OK\r\n');
  });
  afterEach(() => void monitor.socket.destroy());

  /** The names of the relay's commands about sessions, without those that scripts run inside Redis. */
  async function commandsOf(act: () => Promise<unknown>): Promise<string[]> {
    await act();
    await redis.command('ECHO', 'that was all');
    await monitor.waitFor('that was all');
    const lines = [...monitor.text().matchAll(/^\+[\d.]+ \[0 127\.0\.0\.1:\d+\] "(\w+)"(.*)$/gm)];
    return lines
      .filter(([, , rest = '']) => rest.includes('"bot-relay:session:'))
      .map(([, name = '']) => name);
  }

  test('are one read and one extension for a message, and none for its chunks', async () => {
    const names = await commandsOf(async () => {
      const open = await (all as Instances).stream(0, cookie);
      for (let n = 0; n < 50; n += 1) {
        open.event(`data: ${n}\n\n`);
        await sleep(5);
      }
      await open.client.waitFor('data: 49\n\n');
      open.upstream.write(LAST_CHUNK);
      expect(await open.over()).toMatchObject({ complete: true });
    });
    expect(names.map((name) => name.toUpperCase())).toEqual(['GET', 'EVALSHA']);
  });

  test('are one read for GET /auth/session, and none for a forged cookie', async () => {
    const { get } = all as Instances;
    expect(
      await commandsOf(() => get(0, '/auth/session', signedCookie(idOf(cookie), 'x'.repeat(32)))),
    ).toEqual([]);
    expect(await commandsOf(() => get(0, '/auth/session', cookie))).toEqual(['GET']);
  });

  test('are one write for a sign-in, and one more for the session that it replaces', async () => {
    expect(await commandsOf(() => signIn(0))).toEqual(['EVALSHA']);
    const { port } = (all as Instances).relays[0] as TestRelay;
    const again = () =>
      call(port, '/auth/login', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Cookie: cookie },
        body: JSON.stringify({ username: USER.name, password: USER.password }),
      });
    expect((await commandsOf(again)).slice(1)).toEqual(['EVALSHA', 'EVALSHA']);
  });
});
