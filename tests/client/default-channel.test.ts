import { expect, test } from '@jest/globals';
import { defaultChannels } from '../../src/client/default-channel.ts';
import { memoryStore } from '../support/cutting-front.ts';

const DAY_MS = 24 * 3_600_000;

/** What the browser keeps, and the default channels of a bot of a relay in it. */
function browser() {
  const { kept, store } = memoryStore();
  const at = (baseUrl: string, botProviderName = 'helper') =>
    defaultChannels({ baseUrl, namespace: 'acme', botProviderName, store });
  /** Makes all that is kept older. */
  const age = (ms: number) => {
    for (const [key, value] of kept) {
      const rows = JSON.parse(value) as [number, ...unknown[]][];
      store.setItem(key, JSON.stringify(rows.map(([time, ...row]) => [time - ms, ...row])));
    }
  };
  return { kept, at, age };
}

test('a user has one default channel for each bot and relay', () => {
  const { at } = browser();
  const { id, isNew } = at('/one').idFor('ada');
  expect(isNew).toBe(true);
  expect(at('/one').idFor('ada')).toEqual({ id, isNew: false });
  const others = [
    at('/one', 'other').idFor('ada'),
    at('/two').idFor('ada'),
    at('/one').idFor('bob'),
    at('/one').idFor('ada', true),
  ];
  expect(others.map((one) => one.isNew)).toEqual([true, true, true, true]);
  expect(new Set([id, ...others.map((one) => one.id)]).size).toBe(5);
});

test('the ids of a relay are forgotten without those of another one on the same origin', () => {
  const { at, kept } = browser();
  const ids = [at('/one').idFor('ada').id, at('/two').idFor('bob').id];
  at('/two').forget('bob');
  expect([at('/one').idFor('ada').id, at('/two').idFor('bob').id]).toEqual(ids);
  at('/one').forget();
  expect(at('/two').idFor('bob').id).toBe(ids[1]);
  expect(JSON.stringify([...kept.values()])).not.toContain('ada');
  at('/two').forget();
  expect(kept.size).toBe(0);
});

test('an id is forgotten after 30 days without use', () => {
  const { at, age } = browser();
  const { id } = at('').idFor('ada');
  age(29 * DAY_MS);
  expect(at('').idFor('ada').id).toBe(id);
  age(29 * DAY_MS);
  expect(at('').idFor('ada').id).toBe(id);
  age(30 * DAY_MS);
  expect(at('').idFor('ada')).toMatchObject({ isNew: true });
});
