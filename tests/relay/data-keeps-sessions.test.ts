import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session.ts';
import { SESSION_PREFIX } from '../../src/authenticate/sessions/session-script.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { startInstances } from '../harness/relay/instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { idOf, stored } from '../harness/relay/sessions.ts';
import { LAST_CHUNK } from '../harness/service/raw-upstream.ts';

/** Long enough that no real time of the test counts; only the clock that it advances does. */
const IDLE_MS = 600_000;

const closings: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closings.splice(0)) await close();
  jest.restoreAllMocks();
});

function streamKeepsSession(shared: boolean, count: number): void {
  test('a stream that carries data keeps its session alive, and with it the silent streams', async () => {
    let aheadMs = 0;
    const now = Date.now.bind(Date);
    jest.spyOn(Date, 'now').mockImplementation(() => now() + aheadMs);
    const { relays, redis, stream, get, close } = await startInstances({
      ...{ count, shared },
      limits: { idleMs: IDLE_MS },
    });
    closings.push(close);
    const [first] = relays as [TestRelay];
    const cookie = await first.signIn();
    const status = async (at: number) => (await get(at, '/auth/session', cookie)).status;
    const expiresAt = async () => (await stored(first.sessions, idOf(cookie)))?.idleExpiresAt ?? 0;
    const delivering = await stream(0, cookie);
    const silent = await stream(count - 1, cookie);
    for (let times = 0; times < 4; times += 1) {
      // Read before the clock moves: what the stream has carried already may extend the session as soon as it does.
      const before = await expiresAt();
      aheadMs += 0.4 * IDLE_MS;
      delivering.event();
      await until(async () => (await expiresAt()) > before);
    }
    expect([await status(0), await status(count - 1)]).toEqual([200, 200]);
    expect(silent.client.socket.destroyed).toBe(false);
    delivering.upstream.write(LAST_CHUNK);
    expect(await delivering.over()).toMatchObject({ code: undefined, complete: true });
    // Nothing keeps the session alive any more.
    aheadMs += IDLE_MS;
    // It lives by the clock of Redis, if there is one.
    await redis?.command('DEL', SESSION_PREFIX + sessionKey(idOf(cookie)));
    await until(() => silent.client.socket.destroyed);
    expect(await silent.over()).toMatchObject({ code: 'session_ended', complete: true });
    expect(await status(0)).toBe(401);
  });
}

describe('with one instance', () => {
  streamKeepsSession(false, 1);
});

describeWithRedis('with two instances and Redis', () => {
  streamKeepsSession(true, 2);
});
