import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { memoryUnsent } from '../../src/pace/memory-unsent.ts';
import { redisUnsent } from '../../src/pace/redis-unsent.ts';
import { unsentMessages } from '../../src/pace/unsent-messages.ts';
import type { UnsentStore } from '../../src/pace/unsent-store.ts';
import { connected, describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';

const PLACE = { bot: 'acme/helper', channel: 'c1' };
const STOPPED = { code: 'stopped', status: 409 };
const UNAVAILABLE = { code: 'session_store_unavailable' };

/** A store that counts the calls, and can be told to fail. */
function countingStore(store: UnsentStore = memoryUnsent()) {
  const calls: string[] = [];
  const counted = (name: 'enter' | 'leave') => async (conversation: string, ticket: string) => {
    calls.push(name);
    return store[name](conversation, ticket) as Promise<never>;
  };
  return { ...store, calls, enter: counted('enter'), leave: counted('leave') };
}

const entered = ({ calls }: { readonly calls: string[] }, count = 1) =>
  until(() => calls.filter((name) => name === 'enter').length >= count);

describe('a message that has not left', () => {
  test('is dropped by a stop of its conversation at this bot, and by no other', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const stop = new AbortController();
    messages.add(PLACE, stop);
    expect(await messages.stop({ ...PLACE, channel: 'c2' })).toBe(0);
    expect(await messages.stop({ ...PLACE, bot: 'acme/other' })).toBe(0);
    expect(stop.signal.aborted).toBe(false);
    expect(await messages.stop(PLACE)).toBe(1);
    expect(stop.signal.reason).toMatchObject(STOPPED);
    expect(await messages.stop(PLACE)).toBe(0);
  });

  test('asks the store for nothing if it leaves at once', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const message = messages.add(PLACE, new AbortController());
    expect(await message.leave()).toBe(false);
    message.sent();
    message.close();
    const waiting = messages.add({ ...PLACE, channel: 'c2' }, new AbortController());
    await entered(store);
    expect(store.calls).toEqual(['enter']);
    waiting.close();
  });

  test('is counted once if it has waited', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const stop = new AbortController();
    const message = messages.add(PLACE, stop);
    await entered(store);
    expect(await messages.stop(PLACE)).toBe(1);
    expect(stop.signal.reason).toMatchObject(STOPPED);
    await expect(message.leave()).rejects.toMatchObject(STOPPED);
  });

  test('is dropped after its wait, too, until its first bytes have left', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const stops = [new AbortController(), new AbortController()] as const;
    const [connecting, sent] = stops.map((stop) => messages.add(PLACE, stop));
    await entered(store, 2);
    expect([await connecting?.leave(), await sent?.leave()]).toEqual([true, true]);
    sent?.sent();
    expect(await messages.stop(PLACE)).toBe(1);
    expect(stops.map(({ signal }) => signal.aborted)).toEqual([true, false]);
  });

  test('is not entered any more once it may leave, so that no stop counts what may go out', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const [atOnce, waited] = [0, 1].map((n) =>
      messages.add({ ...PLACE, channel: `c${n}` }, new AbortController()),
    );
    await atOnce?.leave();
    await entered(store);
    expect(await waited?.leave()).toBe(true);
    const later = messages.add(PLACE, new AbortController());
    await entered(store, 2);
    expect(store.calls).toEqual(['enter', 'leave', 'enter']);
    for (const message of [atOnce, waited, later]) message?.close();
  });

  test('is dropped when the service has refused it and it waits again', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const stop = new AbortController();
    const message = messages.add(PLACE, stop);
    message.sent();
    expect(await messages.stop(PLACE)).toBe(0);
    message.refused();
    expect(await messages.stop(PLACE)).toBe(1);
    expect(stop.signal.reason).toMatchObject(STOPPED);
  });

  test('is forgotten when it is over, also by the store', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const stop = new AbortController();
    const message = messages.add(PLACE, stop);
    await entered(store);
    message.close();
    await until(() => store.calls.includes('leave'));
    expect(await messages.stop(PLACE)).toBe(0);
    expect(stop.signal.aborted).toBe(false);
  });

  test('is refused if it cannot be entered', async () => {
    const down = { ...memoryUnsent(), enter: () => Promise.reject(new Error('down')) };
    const stop = new AbortController();
    const message = unsentMessages(down).add(PLACE, stop);
    await until(() => stop.signal.aborted);
    expect(stop.signal.reason).toMatchObject({ message: 'down' });
    await expect(message.leave()).rejects.toThrow('down');
    message.close();
  });

  test('of another conversation is not looked at by a stop once it has waited', async () => {
    let looks = 0;
    class WatchedStop extends AbortController {
      override get signal() {
        looks += 1;
        return super.signal;
      }
    }
    const store = countingStore();
    const messages = unsentMessages(store);
    const waiting = Array.from({ length: 100 }, (_, n) =>
      messages.add({ ...PLACE, channel: `other-${n}` }, new WatchedStop()),
    );
    const own = messages.add(PLACE, new WatchedStop());
    await entered(store, 101);
    looks = 0;
    expect(await messages.stop(PLACE)).toBe(1);
    expect(looks).toBeGreaterThan(0);
    expect(looks).toBeLessThan(waiting.length);
    for (const message of [own, ...waiting]) message.close();
  });

  test('counts once if the service has refused it before its first bytes have left', async () => {
    const store = countingStore();
    const messages = unsentMessages(store);
    const message = messages.add(PLACE, new AbortController());
    await entered(store);
    await message.leave();
    message.refused();
    expect(await messages.stop(PLACE)).toBe(1);
    message.close();
  });

  test('shares a timer with all others, which ends when none waits', () => {
    jest.useFakeTimers();
    try {
      const store = countingStore();
      const messages = unsentMessages(store);
      const [leaving, waiting] = [0, 1].map(() => messages.add(PLACE, new AbortController()));
      expect(jest.getTimerCount()).toBe(1);
      leaving?.leave();
      jest.advanceTimersByTime(20);
      expect(store.calls).toEqual(['enter']);
      jest.advanceTimersByTime(20);
      expect(jest.getTimerCount()).toBe(0);
      for (const message of [leaving, waiting]) message?.close();
    } finally {
      jest.useRealTimers();
    }
  });

  test('without a conversation takes no part', async () => {
    const store = countingStore();
    const stop = new AbortController();
    const message = unsentMessages(store).add(undefined, stop);
    expect(await message.leave()).toBe(false);
    for (const call of [message.sent, message.refused, message.close]) call();
    expect(store.calls).toEqual([]);
  });
});

describeWithRedis('an unsent message with Redis', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(stopRedis);

  /** An instance whose messages are those of the others, too. */
  async function instance() {
    const redis = await connected(server.url);
    const store = countingStore(redisUnsent(redis, 600_000));
    return { redis, store, messages: unsentMessages(store) };
  }

  test('is dropped by a stop at another instance, which counts it', async () => {
    const [here, there] = [await instance(), await instance()];
    const stop = new AbortController();
    here.messages.add(PLACE, stop);
    await entered(here.store);
    let count = 0;
    while (count === 0) count = await there.messages.stop(PLACE);
    expect(count).toBe(1);
    await until(() => stop.signal.aborted);
    expect(stop.signal.reason).toMatchObject(STOPPED);
    for (const { redis } of [here, there]) redis.close();
  });

  test('is dropped, or leaves and is not counted, if both come while Redis is paused', async () => {
    const [here, there] = [await instance(), await instance()];
    const results = new Set<string>();
    // After a pause that was too long for the calls, the round is tried again.
    for (let round = 0; results.size < 2 && round < 200; round += 1) {
      const place = { ...PLACE, channel: `c${round}` };
      const message = here.messages.add(place, new AbortController());
      await entered(here.store, round + 1);
      await here.redis.onEach((server) => server.ping());
      server.pause();
      const leave = async () => message.leave();
      const calls = [() => leave().catch(codeOf), () => there.messages.stop(place).catch(codeOf)];
      const both = (round % 2 === 0 ? calls : calls.reverse()).map((call) => call());
      await sleep(20);
      server.resume();
      const outcome = (await Promise.all(both)).sort().join(' and ');
      message.close();
      if (outcome.includes(UNAVAILABLE.code)) continue;
      expect(['0 and true', '1 and stopped']).toContain(outcome);
      results.add(outcome);
    }
    expect(results.size).toBe(2);
    for (const { redis } of [here, there]) redis.close();
  }, 60_000);
});

function codeOf(error: unknown): string {
  return String((error as { code?: string }).code);
}
