import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, keysWhen, startJoinInstances } from '../support/join-instances.ts';
import { INIT, statusOf } from '../support/joining.ts';
import { describeWithRedis } from '../support/redis.ts';

jest.setTimeout(30_000);

let all: JoinInstances;
afterEach(() => all.close());

const runsKnown = (count: number) =>
  keysWhen(all.redis, (keys) => keys.filter((key) => key.includes(':run:')).length === count);

describeWithRedis('a message whose client leaves while it waits for its slot', () => {
  test.each([0, 1])('can be sent again at once, at instance %i', async (at) => {
    const slow = { RATE_LIMIT: '1', RATE_WINDOW_MS: '2000', RATE_MAX_WAIT_MS: '20000' };
    all = await startJoinInstances(2, slow, () => [INIT]);
    await all.say(0, { customMessageId: 'another-message-01' }).waitFor('run.init');
    const first = all.say(0);
    await runsKnown(2);
    first.socket.destroy();
    // Some of it finds the dropped run, some what comes after that.
    await sleep(8);
    const again = [all.say(at), all.say(at)];
    for (const client of again) {
      await client.waitFor('run.init');
      expect(statusOf(client)).toBe(200);
    }
    expect(all.upstream.requests).toHaveLength(2);
  });
});
