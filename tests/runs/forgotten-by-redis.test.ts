import { afterEach, expect, test } from '@jest/globals';
import { bodyOf, DELTA, EVENTS, INIT, problemOf, WHOLE } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, startJoinInstances, statesOfNames } from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

let all: JoinInstances;
afterEach(() => all.close());

describeWithRedis('a page that asks for its run when Redis has just lost its data', () => {
  test('gets all of it at the instance that carries it, once its user has signed in again', async () => {
    all = await startJoinInstances(2, {}, () => [INIT, DELTA]);
    await all.say(0).waitFor('message.delta');
    // It claims the name of its run again soon, and on a slow machine before the other one is asked.
    const claims = (all.wires[0] as FaultProxy).hold('client', '');
    await all.redis.command('FLUSHALL');
    const cookie = await (all.relays[1] as TestRelay).signIn();
    // The other instance cannot know of it yet.
    expect(await problemOf(all.byName(1, { cookie }))).toMatchObject({ code: 'run_over' });
    claims.release();
    await until(async () => (await statesOfNames(all.redis)).includes('s'));
    const page = all.byName(0, { cookie });
    await page.waitFor('message.delta');
    all.emit(...EVENTS.slice(2));
    all.finish();
    expect(await bodyOf(page)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
