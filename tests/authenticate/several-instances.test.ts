import { afterEach, expect, test } from '@jest/globals';
import { expectProblem } from '../harness/clients/call.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { CANARY, type TestRelay } from '../harness/relay/relay.ts';
import { idOf, signedCookie } from '../harness/relay/sessions.ts';
import { LAST_CHUNK } from '../harness/service/raw-upstream.ts';

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
