import { afterEach, expect, test } from '@jest/globals';
import { bodyOf, DELTA, DONE, INIT, problemOf, statusOf } from '../harness/clients/joining.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, startJoinInstances } from '../harness/relay/join-instances.ts';

let all: JoinInstances;
afterEach(() => {
  all.redis.resume();
  return all.close();
});

describeWithRedis.each([
  ['is gone', 'stop'],
  ['does not answer', 'pause'],
] as const)('a run that goes on while Redis %s', (_how, goAway) => {
  test('is not joined at another instance, which answers 503 and sends nothing, and goes on for its own client', async () => {
    // Only the second instance is asked while Redis is away, and only then.
    all = await startJoinInstances(2, {}, () => [INIT, DELTA], [{}, { commandTimeoutMs: 200 }]);
    const own = all.say(0);
    await own.waitFor('message.delta');
    await all.redis[goAway]();
    const another = { customMessageId: 'another-message-01' };
    for (const [refused, retryable] of [
      [all.say(1), 'same message'],
      [all.byName(1), 'new message'],
      [all.say(1, another), 'same message'],
    ] as const) {
      expect(await problemOf(refused)).toMatchObject({ code: 'session_store_unavailable', retryable });
      expect(statusOf(refused)).toBe(503);
    }
    all.emit(DELTA, DONE);
    all.finish();
    expect(await bodyOf(own)).toBe(INIT + DELTA + DELTA + DONE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
