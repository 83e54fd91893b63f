import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { Redis } from '../../src/storage/redis.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { connected, describeWithRedis, startRedis } from '../harness/redis/redis.ts';
import { RunWorld } from '../harness/runs/run-world.ts';

/** How many worlds there are at a time, since each of them waits most of its time. */
const WORLDS = 4;
/** Each has a database of its own. */
let databases: Redis[];
beforeAll(async () => {
  const { url } = await startRedis();
  databases = await Promise.all(Array.from({ length: WORLDS }, (_, n) => connected(`${url}/${n}`)));
});
afterAll(() => {
  for (const redis of databases) redis.close();
});

type Step = (world: RunWorld) => unknown;
type Happening = readonly [what: string, n: number, m: number];
/** What can happen, and how often it does. */
const HAPPENINGS: Readonly<Record<string, readonly [weight: number, act: (n: number, m: number) => Step]>> = {
  post: [6, (n, m) => (world) => world.post(n, m)],
  leave: [2, (n) => (world) => world.leave(n)],
  stop: [1, (n) => (world) => world.stop(n)],
  kill: [1, (n) => (world) => world.kill(n)],
  freeze: [1, (n) => (world) => world.freeze(n)],
  thaw: [1, (n) => (world) => world.thaw(n)],
  lose: [1, () => (world) => world.lose()],
  advance: [12, (n) => (world) => world.advance(n)],
  // Long enough for news, or for a lease.
  pause: [6, () => () => sleep(10)],
  lapse: [1, () => () => sleep(90)],
};
const happening = fc.tuple(
  fc.oneof(
    ...Object.entries(HAPPENINGS).map(([what, [weight]]) => ({ arbitrary: fc.constant(what), weight })),
  ),
  fc.nat({ max: 5 }),
  fc.nat({ max: 2 }),
);

/** What happens, and after that all that is left comes to its end. */
async function play(redis: Redis, happenings: readonly Happening[]): Promise<RunWorld> {
  const world = new RunWorld(redis, 3);
  for (const [what, n, m] of happenings) {
    await HAPPENINGS[what]?.[1](n, m)(world);
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
    const numRuns = Number(process.env.NUM_RUNS ?? 40) / WORLDS;
    const inOrder = fc.array(happening, { maxLength: 60, size: 'max' });
    const check = async (redis: Redis, happenings: readonly Happening[]) => {
      const { sends, clients, faults } = await play(redis, happenings);
      expect(faults).toEqual([]);
      for (const { sink } of clients) {
        const from = sends.filter(({ text }) => text.startsWith(sink.text));
        expect(sink.text === '' || from.length > 0).toBe(true);
        if (sink.end !== 'complete') continue;
        expect(from.find(({ text, isComplete }) => text === sink.text && isComplete)).toBeDefined();
      }
    };
    const properties = databases.map((redis) => fc.asyncProperty(inOrder, (one) => check(redis, one)));
    await Promise.all(properties.map((property) => fc.assert(property, { numRuns })));
  }, 300_000);
});
