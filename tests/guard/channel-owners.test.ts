import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { ChannelOwners } from '../../src/guard/channel-owners.ts';
import { memoryChannelOwners } from '../../src/guard/memory-channel-owners.ts';
import { redisChannelOwners } from '../../src/guard/redis-channel-owners.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { connected, describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';

/** Tests for every implementation of the owners. */
function contract(make: () => ChannelOwners): void {
  let owners: ChannelOwners;
  let channel: string;
  let count = 0;
  beforeEach(() => {
    owners = make();
    channel = `channel-${++count}`;
  });

  test('know nobody of a conversation that was never claimed', async () => {
    expect(await owners.find(channel, ['here'])).toBeUndefined();
  });

  test('keep the first claim, and tell the owner to all later ones', async () => {
    expect(await owners.claim(channel, { owner: 'ada', place: 'here' })).toBe('ada');
    expect(await owners.claim(channel, { owner: 'bob', place: 'here' })).toBe('ada');
    expect(await owners.claim(channel, { owner: 'bob', place: 'there' })).toBe('ada');
    expect(await owners.find(channel, ['here'])).toEqual({ owner: 'ada', isPlaced: true });
    expect(await owners.find(channel, ['there'])).toEqual({ owner: 'ada', isPlaced: false });
  });

  test('add places of the same owner, and find one of several', async () => {
    await owners.claim(channel, { owner: 'ada', place: 'here' });
    expect(await owners.claim(channel, { owner: 'ada', place: 'there' })).toBe('ada');
    for (const places of [['here'], ['there'], ['nowhere', 'there']])
      expect(await owners.find(channel, places)).toEqual({ owner: 'ada', isPlaced: true });
    expect(await owners.find(channel, ['nowhere'])).toEqual({ owner: 'ada', isPlaced: false });
  });

  test('keep conversations apart', async () => {
    await owners.claim(channel, { owner: 'ada', place: 'here' });
    expect(await owners.find(`${channel}-2`, ['here'])).toBeUndefined();
    expect(await owners.claim(`${channel}-2`, { owner: 'bob', place: 'here' })).toBe('bob');
  });

  test('take a conversation away at all places, after which anybody may claim it', async () => {
    expect(await owners.release(channel)).toBe(false);
    for (const place of ['here', 'there']) await owners.claim(channel, { owner: 'ada', place });
    await owners.claim(`${channel}-2`, { owner: 'ada', place: 'here' });
    expect(await owners.release(channel)).toBe(true);
    expect(await owners.find(channel, ['here'])).toBeUndefined();
    expect(await owners.find(`${channel}-2`, ['here'])).toMatchObject({ owner: 'ada' });
    expect(await owners.claim(channel, { owner: 'bob', place: 'there' })).toBe('bob');
    expect(await owners.find(channel, ['here'])).toEqual({ owner: 'bob', isPlaced: false });
  });

  test('give a conversation to exactly one of many who claim it at once', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `user-${index}`);
    const told = await Promise.all(names.map((owner) => owners.claim(channel, { owner, place: 'here' })));
    expect(new Set(told).size).toBe(1);
    expect(await owners.find(channel, ['here'])).toEqual({ owner: told[0], isPlaced: true });
  });
}

describe('owners of conversations in memory', () => {
  contract(memoryChannelOwners);

  test('are forgotten by another store', async () => {
    await memoryChannelOwners().claim('c', { owner: 'ada', place: 'here' });
    expect(await memoryChannelOwners().find('c', ['here'])).toBeUndefined();
  });
});

describeWithRedis('owners of conversations in Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  let other: Redis;
  beforeAll(async () => {
    server = await startRedis();
    [redis, other] = await Promise.all([connected(server.url), connected(server.url)]);
  });
  afterAll(() => {
    for (const one of [redis, other]) one?.close();
    stopRedis();
  });

  contract(() => redisChannelOwners(redis));

  test('are shared by all instances, and never expire', async () => {
    await redisChannelOwners(redis).claim('shared', { owner: 'ada', place: 'here' });
    expect(await redisChannelOwners(other).claim('shared', { owner: 'bob', place: 'here' })).toBe('ada');
    expect(await server.command('TTL', 'bot-relay:channel-owner:shared')).toBe(-1);
  });

  test('are not available while Redis does not answer', async () => {
    const owners = redisChannelOwners(redis);
    server.pause();
    try {
      const failing = { code: 'session_store_unavailable' };
      await Promise.all([
        expect(owners.find('x', ['here'])).rejects.toMatchObject(failing),
        expect(owners.claim('x', { owner: 'ada', place: 'here' })).rejects.toMatchObject(failing),
      ]);
    } finally {
      server.resume();
    }
  });
});
