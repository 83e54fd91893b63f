import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { conversationBlobs, type GivenBlobs, KEPT_MS, MAX_KEPT } from '../../src/guard/conversation-blobs.ts';
import { memoryGivenBlobs } from '../../src/guard/memory-given-blobs.ts';
import { redisGivenBlobs } from '../../src/guard/redis-given-blobs.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';

const ids = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `b${from + n}`);

/** Tests for every implementation of the given files. */
function contract(make: () => GivenBlobs): void {
  test('are known where they were given, and nowhere else', async () => {
    const given = make();
    await given.remember('place one', ['a', 'b']);
    await given.remember('place one', ['c']);
    expect(await given.areGiven('place one', ['a', 'c'])).toBe(true);
    expect(await given.areGiven('place one', ['a', 'd'])).toBe(false);
    expect(await given.areGiven('place two', ['a'])).toBe(false);
  });

  test('are forgotten, the oldest first, if there are too many', async () => {
    const given = make();
    await given.remember('many', ['first', ...ids(0, MAX_KEPT - 1)]);
    expect(await given.areGiven('many', ['first'])).toBe(true);
    await given.remember('many', ['first']);
    await given.remember('many', ['one more']);
    expect(await given.areGiven('many', ['first', 'one more', ...ids(1, MAX_KEPT - 1)])).toBe(true);
    expect(await given.areGiven('many', ['b0'])).toBe(false);
  });
}

describe('given files in memory', () => {
  contract(() => memoryGivenBlobs());

  test('expire a day after the last one of their conversation', async () => {
    let now = 0;
    const given = memoryGivenBlobs(() => now);
    await given.remember('p', ['a']);
    now = KEPT_MS - 1;
    await given.remember('p', ['b']);
    now = 2 * KEPT_MS - 2;
    expect(await given.areGiven('p', ['a', 'b'])).toBe(true);
    now += 1;
    expect(await given.areGiven('p', ['b'])).toBe(false);
  });

  test('are kept for 10,000 conversations', async () => {
    const given = memoryGivenBlobs();
    for (let n = 0; n <= 10_000; n += 1) await given.remember(`p${n}`, ['a']);
    expect(await given.areGiven('p0', ['a'])).toBe(false);
    expect(await given.areGiven('p1', ['a'])).toBe(true);
  });
});

describeWithRedis('given files in Redis', () => {
  let redis: Redis;
  beforeAll(async () => {
    redis = await connected((await startRedis()).url);
  });
  afterAll(async () => {
    redis.close();
    await stopRedis();
  });

  contract(() => redisGivenBlobs(redis));

  test('expire a day after the last one, and their keys name nobody', async () => {
    await redisGivenBlobs(redis).remember('ada', ['a']);
    const [left] = await redis.onEach((server) => server.pTTL(`bot-relay:blobs:${keyPart('ada')}`));
    expect(left).toBeGreaterThan(KEPT_MS - 60_000);
    expect(left).toBeLessThanOrEqual(KEPT_MS);
  });
});

describe('the files of a message', () => {
  const blobs = (takesFiles = true) =>
    conversationBlobs({ given: memoryGivenBlobs(), realm: 'r', takesFiles: () => takesFiles });
  const owner = { bot: 'acme/helper', userId: 'ada', conversation: { client: 'c', upstream: 'u' } };
  const message = (blobIds: unknown) => Buffer.from(JSON.stringify({ customChannelId: 'c', blobIds }));
  const answer = Buffer.from('{"data":[{"blobId":"a"},{"blobId":"b","other":{"blobId":7}}]}');

  test('pass if they were given to this user in this conversation of this bot', async () => {
    const all = blobs();
    await all.remember(answer, owner);
    for (const good of [['a', 'b'], [], null, undefined])
      expect(await all.check(message(good), owner)).toBeUndefined();
    const others = [
      { ...owner, userId: 'bob' },
      { ...owner, bot: 'acme/other' },
      { ...owner, conversation: { client: 'c', upstream: 'other' } },
      { ...owner, conversation: undefined },
    ];
    for (const other of others)
      await expect(all.check(message(['a']), other)).rejects.toMatchObject({ code: 'not_your_conversation' });
    await expect(all.check(message(['a', 'x']), owner)).rejects.toMatchObject({
      code: 'not_your_conversation',
    });
  });

  test('are found in an answer with very many levels', async () => {
    const all = blobs();
    const levels = 100_000;
    await all.remember(Buffer.from(`${'['.repeat(levels)}{"blobId":"a"}${']'.repeat(levels)}`), owner);
    await expect(all.check(message(['a']), owner)).resolves.toBeUndefined();
  });

  test.each([
    '{"blobIds":"a"}',
    '{"blobIds":[1]}',
    '{"blobIds":[""]}',
    '{"blobIds":{"0":"a"}}',
    '{"blob_ids":["x"]}',
    '{"blobIds[]":["x"]}',
    '{"BLOBIDS":["x"]}',
    '{"blobIds":[],"blobIds":["x"]}',
    `{"blobIds":${JSON.stringify(ids(0, 101))}}`,
  ])('are one list with its own name: %s is refused', async (json) => {
    const check = async () => blobs().check(Buffer.from(json), owner);
    await expect(check()).rejects.toMatchObject({ code: 'invalid_conversation' });
  });

  test('are left to the service where uploads are off, and refused if no answer has named them', async () => {
    expect(await blobs(false).check(message(['x']), owner)).toBeUndefined();
    const all = blobs();
    for (const empty of ['', '{}', '"a"', '{"blobId":""}']) await all.remember(Buffer.from(empty), owner);
    await expect(all.check(message(['a']), owner)).rejects.toMatchObject({ code: 'not_your_conversation' });
  });
});
