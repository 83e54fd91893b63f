import { afterEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, DELTA, EVENTS, INIT, problemOf, statusOf, WHOLE } from '../support/joining.ts';
import { describeWithRedis } from '../support/redis.ts';

jest.setTimeout(30_000);

let all: JoinInstances;
afterEach(() => {
  all.redis.resume();
  return all.close();
});

describeWithRedis.each([
  ['is gone', 'stop'],
  ['does not answer', 'pause'],
] as const)('a run that goes on while Redis %s', (_how, goAway) => {
  test('is not joined at another instance, which answers 503, and goes on for its own client', async () => {
    all = await startJoinInstances(2, {}, () => [INIT, DELTA]);
    const own = all.say(0);
    await own.waitFor('message.delta');
    const reader = all.say(1);
    await reader.waitFor('message.delta');
    await all.redis[goAway]();
    for (const refused of [all.say(1), all.byName(1)]) {
      expect(await problemOf(refused)).toMatchObject({ code: 'session_store_unavailable' });
      expect(statusOf(refused)).toBe(503);
    }
    all.emit(...EVENTS.slice(2));
    all.finish();
    expect(await bodyOf(own)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
