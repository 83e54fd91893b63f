import { afterEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, DELTA, EVENTS, INIT, problemOf, WHOLE } from '../support/joining.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { RedisProxy } from '../support/redis-proxy.ts';
import type { TestRelay } from '../support/relay.ts';
import { until } from '../support/until.ts';

jest.setTimeout(60_000);

let all: JoinInstances;
afterEach(() => all.close());

describeWithRedis('a page that asks for its run when Redis has just lost its data', () => {
  test('gets all of it at the instance that carries it, once its user has signed in again', async () => {
    all = await startJoinInstances(2, {}, () => [INIT, DELTA]);
    await all.say(0).waitFor('message.delta');
    // It claims the name of its run again soon, and on a slow machine before the other one is asked.
    const [carrier] = all.relays as [TestRelay];
    const claims = (all.wires[0] as RedisProxy).hold('relay', '');
    await all.redis.command('FLUSHALL');
    const cookie = await (all.relays[1] as TestRelay).signIn();
    // The other instance cannot know of it yet.
    expect(await problemOf(all.byName(1, { cookie }))).toMatchObject({ code: 'run_over' });
    claims.release();
    await until(() => carrier.redis?.answers() ?? false);
    const page = all.byName(0, { cookie });
    await page.waitFor('message.delta');
    all.emit(...EVENTS.slice(2));
    all.finish();
    expect(await bodyOf(page)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
