import { beforeEach, describe, expect, test } from '@jest/globals';
import session, { type SessionData } from 'express-session';
import { MemorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { createMetrics } from '../../src/watch/metrics.ts';
import { countSessionOperations } from '../../src/watch/session-operations.ts';
import { total } from '../support/samples.ts';

const metrics = createMetrics([]);
const count = async (operation: string, outcome: string) =>
  total(await metrics.registry.metrics(), 'bot_relay_session_operations_total', { operation, outcome });

beforeEach(() => metrics.sessionOperations.reset());

/** A store that answers as some do: with a callback if it gets one, else with a promise. */
class PromisingStore extends session.Store {
  failing = false;

  override async get(_id: string, callback?: (error: unknown, data?: SessionData | null) => void) {
    if (!callback) return this.failing ? Promise.reject(new Error('away')) : ({ a: 1 } as never);
    callback(this.failing ? new Error('away') : null, this.failing ? undefined : null);
  }
  override async set(_id: string, _data: SessionData, callback?: (error?: unknown) => void) {
    callback?.(this.failing ? new Error('away') : undefined);
  }
  override async destroy(_id: string, callback?: (error?: unknown) => void) {
    callback?.(this.failing ? new Error('away') : null);
  }
  /** One of the methods that the relay itself wants of a store. */
  async extend(): Promise<number> {
    if (this.failing) throw new Error('away');
    return 1;
  }
}

function watched(): PromisingStore {
  const store = new PromisingStore();
  countSessionOperations(store, metrics);
  return store;
}

describe('a session store that is watched', () => {
  test('tells failures apart, and hands on what the store says', async () => {
    const store = watched();
    expect(await new Promise((resolve) => store.get('id', (...said) => resolve(said)))).toEqual([null, null]);
    store.failing = true;
    const [error] = await new Promise<unknown[]>((resolve) => store.get('id', (...said) => resolve(said)));
    expect(error).toEqual(new Error('away'));
    expect(await count('get', 'ok')).toBe(1);
    expect(await count('get', 'unavailable')).toBe(1);
  });

  test('is told of where there is no callback', async () => {
    const store = watched();
    expect(await (store.get as (id: string) => Promise<unknown>)('id')).toEqual({ a: 1 });
    store.failing = true;
    await expect((store.get as (id: string) => Promise<unknown>)('id')).rejects.toThrow('away');
    expect(await count('get', 'ok')).toBe(1);
    expect(await count('get', 'unavailable')).toBe(1);
  });

  test("counts the relay's own methods as the operations that they are", async () => {
    const store = watched();
    expect(await store.extend()).toBe(1);
    store.failing = true;
    await expect(store.extend()).rejects.toThrow('away');
    expect(await count('touch', 'ok')).toBe(1);
    expect(await count('touch', 'unavailable')).toBe(1);
  });

  test('counts what express-session calls by way of others', async () => {
    const store = watched();
    store.failing = true;
    const req = { sessionID: 'id' } as Parameters<typeof store.regenerate>[0];
    Object.assign(store, { generate: () => {} });
    await new Promise<void>((resolve) => store.regenerate(req, () => resolve()));
    expect(await count('destroy', 'unavailable')).toBe(1);
  });

  test.each(['remove', 'removeProviderSession', 'removeUser'] as const)(
    'counts %s as the end of sessions',
    async (name) => {
      const store = new MemorySessionStore();
      countSessionOperations(store, metrics);
      await store[name]('one');
      expect(await count('destroy', 'ok')).toBe(1);
      const failing = {
        [name]: async () => Promise.reject(new Error('away')),
      } as unknown as MemorySessionStore;
      countSessionOperations(failing, metrics);
      await expect(failing[name]('one')).rejects.toThrow('away');
      expect(await count('destroy', 'unavailable')).toBe(1);
      store.close();
    },
  );

  test('counts a question for removals as a reading', async () => {
    const store = new MemorySessionStore();
    countSessionOperations(store, metrics);
    await store.removedSince({ userId: 'ada', providerSession: undefined }, 0);
    expect(await count('get', 'ok')).toBe(1);
    store.close();
  });

  test('keeps what it lacks lacking', () => {
    expect(watched().touch).toBeUndefined();
  });
});
