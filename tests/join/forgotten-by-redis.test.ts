import { afterEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, DELTA, EVENTS, INIT, problemOf, WHOLE } from '../support/joining.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { TestRelay } from '../support/relay.ts';

jest.setTimeout(60_000);

let all: JoinInstances;
afterEach(() => all.close());

describeWithRedis('a page that asks for its run when Redis has just lost its data', () => {
  test('gets all of it at the instance that carries it, once its user has signed in again', async () => {
    all = await startJoinInstances(2, {}, () => [INIT, DELTA]);
    await all.say(0).waitFor('message.delta');
    await all.redis.command('FLUSHALL');
    const cookie = await (all.relays[1] as TestRelay).signIn();
    // The other instance does not know of it yet, or only that its log is gone: the first one soon claims the name again.
    const { code } = await problemOf(all.byName(1, { cookie }));
    expect(['run_over', 'answer_lost']).toContain(code);
    const page = all.byName(0, { cookie });
    await page.waitFor('message.delta');
    all.emit(...EVENTS.slice(2));
    all.finish();
    expect(await bodyOf(page)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
