import { expect, test } from '@jest/globals';
import { DELTA, INIT } from '../harness/clients/joining.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { startJoinInstances } from '../harness/relay/join-instances.ts';

describeWithRedis('a reader at another instance than the one that carries its run', () => {
  test('gets eight events, each after the one before it, in less than four seconds', async () => {
    const all = await startJoinInstances(2, {}, () => [INIT]);
    try {
      await all.say(0).waitFor('run.init');
      const second = all.say(1);
      await second.waitFor('run.init');
      const before = performance.now();
      for (let n = 1; n <= 8; n++) {
        all.emit(DELTA.replace('data: {', `data: {"n":${n},`));
        await second.waitFor(`"n":${n},`);
      }
      expect(performance.now() - before).toBeLessThan(4_000);
    } finally {
      await all.close();
    }
  });
});
