import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, test } from '@jest/globals';
import { eventually, until } from '../harness/clock/until.ts';
import { closeLogged, messages, openLogged, ping } from '../harness/redis/logged-redis.ts';
import { describeWithRedis, startRedis } from '../harness/redis/redis.ts';

afterAll(closeLogged);

describeWithRedis('the connection to Redis', () => {
  test('stays open without commands', async () => {
    const lines: string[] = [];
    const redis = openLogged((await startRedis()).url, lines);
    await eventually(() => ping(redis));
    // Longer than the silence after which a connection is dropped.
    await sleep(5700);
    await ping(redis);
    expect(messages(lines)).toEqual(['redis ready']);
    expect(redis.backAt()).toBeUndefined();
  });

  test('gives up on a paused Redis in less than a second, and goes on when Redis does', async () => {
    const lines: string[] = [];
    const server = await startRedis();
    const redis = openLogged(server.url, lines);
    await eventually(() => ping(redis));
    server.pause();
    const from = performance.now();
    const timedOut = { code: 'session_store_unavailable', options: { retryAfter: 1 }, cause: 'TIMEOUT' };
    await expect(ping(redis)).rejects.toMatchObject(timedOut);
    expect(performance.now() - from).toBeLessThan(1000);
    await until(() => lines.length >= 2);
    server.resume();
    expect(JSON.parse(lines[1] as string)).toMatchObject({ msg: 'redis lost', cause: 'TIMEOUT' });
    expect(await eventually(() => ping(redis))).toBe('PONG');
    expect(messages(lines)).toEqual(['redis ready', 'redis lost', 'redis ready']);
  });

  test('waits for an answer after a pause of the whole machine', async () => {
    const server = await startRedis();
    const redis = openLogged(server.url);
    await eventually(() => ping(redis));
    server.pause();
    const answer = ping(redis);
    await sleep(30);
    await new Promise(setImmediate);
    const pausedUntil = performance.now() + 700;
    while (performance.now() < pausedUntil);
    setTimeout(server.resume, 50);
    await answer;
  });

  test('keeps its connection during a pause of three seconds', async () => {
    const lines: string[] = [];
    const redis = openLogged((await startRedis()).url, lines);
    await eventually(() => ping(redis));
    const answer = ping(redis);
    await new Promise(setImmediate);
    const pausedUntil = performance.now() + 3000;
    while (performance.now() < pausedUntil);
    expect(await answer).toBe('PONG');
    expect(await ping(redis)).toBe('PONG');
    expect(messages(lines)).toEqual(['redis ready']);
  });
});
