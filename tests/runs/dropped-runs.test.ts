import { afterEach, expect, test } from '@jest/globals';
import { INIT, statusOf } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, startJoinInstances, statesOfNames } from '../harness/relay/join-instances.ts';

let all: JoinInstances;
afterEach(() => all.close());

const isClaimed = () => until(async () => (await statesOfNames(all.redis)).includes('c'));

describeWithRedis('a message whose client leaves while it waits for its slot', () => {
  test.each([0, 1])('can be sent again at once, at instance %i', async (at) => {
    const slow = { RATE_LIMIT: '1', RATE_WINDOW_MS: '2000', RATE_MAX_WAIT_MS: '20000' };
    all = await startJoinInstances(2, slow, () => [INIT]);
    await all.say(0, { customMessageId: 'another-message-01' }).waitFor('run.init');
    const first = all.say(0);
    await isClaimed();
    first.socket.destroy();
    // It may find the dropped run, or what comes after that.
    const again = [all.say(at), all.say(at)];
    for (const client of again) {
      await client.waitFor('run.init');
      expect(statusOf(client)).toBe(200);
    }
    expect(all.upstream.requests).toHaveLength(2);
  });
});
