import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import type { Session } from '../../src/authenticate/sessions/session.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';

const session = (idleExpiresAt: number): Session => ({
  user: { id: 'ada', name: 'ada' },
  startedAt: 0,
  idleExpiresAt,
  absoluteExpiresAt: 1_000_000,
});

let now: number;
let store: SessionStore;
beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['queueMicrotask', 'nextTick'] });
  now = 1000;
  store = memorySessionStore(() => now);
});
afterEach(() => {
  store.close();
  jest.useRealTimers();
});

describe('the memory session store', () => {
  test('deletes expired sessions, and only those, within a minute', async () => {
    await store.set('live', session(61_001));
    await store.set('dead', session(61_000));
    now = 61_000;
    expect(await store.get('dead')).toBeUndefined();
    jest.advanceTimersByTime(60_000);
    // If the clock goes back, a session that was not deleted is there again.
    now = 60_999;
    expect(await store.get('live')).toBeDefined();
    expect(await store.get('dead')).toBeUndefined();
  });

  test('remembers a removed session until it would have expired', async () => {
    await store.set('a', session(61_000));
    await store.remove('a');
    jest.advanceTimersByTime(60_000);
    expect(await store.state({ ...session(61_000), key: 'a' })).toBe('removed');
    now = 61_000;
    jest.advanceTimersByTime(60_000);
    expect(await store.state({ ...session(61_000), key: 'a' })).toBe('missing');
  });

  test('forgets after a minute that all sessions of a user were removed', async () => {
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

  test('stops its timer when it is closed', () => {
    expect(jest.getTimerCount()).toBe(1);
    store.close();
    expect(jest.getTimerCount()).toBe(0);
  });
});
