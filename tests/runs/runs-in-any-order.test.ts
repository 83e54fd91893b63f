import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { Redis } from '../../src/storage/redis.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../harness/redis/redis.ts';
import { RunWorld } from '../harness/runs/run-world.ts';

let server: RedisServer;
let redis: Redis;
beforeAll(async () => {
  server = await startRedis();
  redis = await connected(server.url);
});
afterAll(async () => {
  redis.close();
  await server.stop();
});

type Step = (world: RunWorld) => unknown;
type Happening = readonly [what: string, n: number, m: number];
const HAPPENINGS: Readonly<Record<string, (n: number, m: number) => Step>> = {
  post: (n, m) => (world) => world.post(n, m),
  leave: (n) => (world) => world.leave(n),
  stop: (n) => (world) => world.stop(n),
  kill: (n) => (world) => world.kill(n),
  freeze: (n) => (world) => world.freeze(n),
  thaw: (n) => (world) => world.thaw(n),
  lose: () => (world) => world.lose(),
  advance: (n) => (world) => world.advance(n),
  // Long enough for news, or for a lease.
  pause: () => () => sleep(10),
  lapse: () => () => sleep(90),
};
const weights = {
  post: 6,
  leave: 2,
  stop: 1,
  kill: 1,
  freeze: 1,
  thaw: 1,
  lose: 1,
  advance: 12,
  pause: 6,
  lapse: 1,
};
const happening = fc.tuple(
  fc.oneof(...Object.entries(weights).map(([what, weight]) => ({ arbitrary: fc.constant(what), weight }))),
  fc.nat({ max: 5 }),
  fc.nat({ max: 2 }),
);

/** What happens, and after that all that is left comes to its end. */
async function play(happenings: readonly Happening[]): Promise<RunWorld> {
  const world = new RunWorld(redis, 3);
  for (const [what, n, m] of happenings) {
    await HAPPENINGS[what]?.(n, m)(world);
    await new Promise(setImmediate);
  }
  world.thawAll();
  const alive = world.clients.filter(({ instance }) => !instance.isKilled);
  let waiting = alive.length;
  for (const { done } of alive) void done.then(() => waiting--);
  await until(() => !world.advance(0) && waiting === 0);
  return world;
}

describeWithRedis('whatever happens to runs, in any order', () => {
  test('one message is one run, no reader has a gap, and no stream looks complete that is not', async () => {
    const property = fc.asyncProperty(
      fc.array(happening, { maxLength: 60, size: 'max' }),
      async (happenings) => {
        const { sends, clients, faults } = await play(happenings);
        expect(faults).toEqual([]);
        for (const { sink } of clients) {
          const from = sends.filter(({ text }) => text.startsWith(sink.text));
          expect(sink.text === '' || from.length > 0).toBe(true);
          if (sink.end !== 'complete') continue;
          expect(from.find(({ text, isComplete }) => text === sink.text && isComplete)).toBeDefined();
        }
      },
    );
    await fc.assert(property, { numRuns: Number(process.env.NUM_RUNS ?? 40), endOnFailure: false });
  }, 300_000);
});
