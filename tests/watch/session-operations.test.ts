import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { startSession } from '../../src/authenticate/sessions/session.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createMetrics } from '../../src/watch/metrics.ts';
import { countSessionOperations } from '../../src/watch/session-operations.ts';
import { total } from '../harness/relay/metric-samples.ts';

const metrics = createMetrics([]);
const count = async (operation: string, outcome: string) =>
  total(await metrics.registry.metrics(), 'bot_relay_session_operations_total', { operation, outcome });

const NOW = Date.now();
const SESSION = startSession({ id: 'ada', name: 'ada' }, { idleMs: 1000, absoluteMs: 1000 }, NOW);

const LIVE = { ...SESSION, key: 'key' };

/** The calls of a store, and the operation that each counts as. */
const CALLS = {
  get: ['get', (store: SessionStore) => store.get('key')],
  hasEnded: ['get', (store: SessionStore) => store.hasEnded(LIVE)],
  state: ['get', (store: SessionStore) => store.state(LIVE)],
  removedSince: [
    'get',
    (store: SessionStore) => store.removedSince({ userId: 'ada', providerSession: undefined }, 0),
  ],
  set: ['set', (store: SessionStore) => store.set('key', SESSION)],
  extend: ['touch', (store: SessionStore) => store.extend(LIVE, 1)],
  remove: ['destroy', (store: SessionStore) => store.remove('key')],
  removeProviderSession: ['destroy', (store: SessionStore) => store.removeProviderSession('one')],
  removeUser: ['destroy', (store: SessionStore) => store.removeUser('ada')],
} as const;
type Name = keyof typeof CALLS;

let inner: SessionStore;
beforeEach(() => {
  metrics.sessionOperations.reset();
  inner = memorySessionStore(() => NOW);
});
afterEach(() => inner.close());

describe('a session store whose operations are counted', () => {
  test.each(Object.entries(CALLS) as [Name, (typeof CALLS)[Name]][])(
    'counts failures of %s separately, and returns the results of the store',
    async (name, [operation, ask]) => {
      const wanted = await ask(inner);
      expect(await ask(countSessionOperations(inner, metrics))).toEqual(wanted);
      expect([await count(operation, 'ok'), await count(operation, 'unavailable')]).toEqual([1, 0]);
      const away = new Error('away');
      jest.spyOn(inner, name).mockRejectedValue(away);
      await expect(ask(countSessionOperations(inner, metrics))).rejects.toBe(away);
      expect([await count(operation, 'ok'), await count(operation, 'unavailable')]).toEqual([1, 1]);
    },
  );

  test('passes on calls, and reports removals', async () => {
    const store = countSessionOperations(inner, metrics);
    const removed: string[] = [];
    store.listen({ removed: (keys) => void removed.push(...keys), missed() {} });
    await store.set('key', SESSION);
    expect(await store.get('key')).toEqual(SESSION);
    expect(await inner.get('key')).toEqual(SESSION);
    await store.remove('key');
    expect(removed).toEqual(['key']);
  });
});
