import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { SessionData } from 'express-session';
import { MemorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import { stored } from '../support/sessions.ts';

const session = (idleExpiresAt?: number) =>
  ({ cookie: {}, ...(idleExpiresAt === undefined ? {} : { idleExpiresAt }) }) as SessionData;

let now: number;
let store: MemorySessionStore;
beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['queueMicrotask', 'nextTick'] });
  now = 1000;
  store = new MemorySessionStore(() => now);
});
afterEach(() => {
  store.close();
  jest.useRealTimers();
});

describe('the memory session store', () => {
  test('forgets dead sessions by itself within a minute, and only those', async () => {
    store.set('live', session(61_001));
    store.set('dead', session(61_000));
    store.set('nobody', session());
    now = 61_000;
    expect(await stored(store, 'dead')).not.toBeNull();
    jest.advanceTimersByTime(60_000);
    expect(await stored(store, 'live')).not.toBeNull();
    expect(await stored(store, 'dead')).toBeNull();
    expect(await stored(store, 'nobody')).toBeNull();
  });

  test('remembers what was removed for as long as it would have lived, and no longer', async () => {
    store.set('a', session(61_000));
    store.destroy('a');
    jest.advanceTimersByTime(60_000);
    expect(await store.state(sessionKey('a'))).toBe('removed');
    now = 61_000;
    jest.advanceTimersByTime(60_000);
    expect(await store.state(sessionKey('a'))).toBe('missing');
  });

  test('forgets after a minute that all sessions of somebody were removed', async () => {
    const owner = { userId: 'ada', providerSession: 'one' };
    await store.removeUser('ada');
    await store.removeProviderSession('one');
    now += 59_999;
    jest.advanceTimersByTime(60_000);
    expect(await store.removedSince(owner, 1000)).toBe(true);
    now += 1;
    jest.advanceTimersByTime(60_000);
    expect(await store.removedSince(owner, 0)).toBe(false);
  });

  test('sweeps no more once it is closed', () => {
    expect(jest.getTimerCount()).toBe(1);
    store.close();
    expect(jest.getTimerCount()).toBe(0);
  });
});
