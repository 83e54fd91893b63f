import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { boundedMap } from '../../src/service/store/bounded-map.ts';

afterEach(() => {
  jest.restoreAllMocks();
});

function start(maxEntries: number) {
  const now = jest.spyOn(performance, 'now').mockReturnValue(0);
  const left: string[] = [];
  const map = boundedMap<string>({ maxEntries, maxAgeMs: 1000, onLeave: (value) => void left.push(value) });
  return { map, left, at: (ms: number) => now.mockReturnValue(ms) };
}

describe('a bounded map', () => {
  test('forgets the entry that was not used for the longest time', () => {
    const { map, left } = start(2);
    map.set('a', 'A');
    map.set('b', 'B');
    expect(map.get('a')).toBe('A');
    map.set('c', 'C');
    expect([...map.values()]).toEqual(['A', 'C']);
    expect(left).toEqual(['B']);
  });

  test('forgets entries by their age since they were used', () => {
    const { map, left, at } = start(9);
    map.set('a', 'A');
    map.set('b', 'B');
    at(900);
    expect(map.get('a')).toBe('A');
    at(1000);
    expect([map.get('b'), map.get('a'), map.size]).toEqual([undefined, 'A', 1]);
    at(2000);
    expect(map.get('a')).toBeUndefined();
    expect(left).toEqual(['B', 'A']);
  });

  test('tells of values that are replaced or deleted, once', () => {
    const { map, left } = start(9);
    map.set('a', 'A');
    map.set('a', 'A');
    map.set('a', 'A2');
    expect(left).toEqual(['A']);
    expect([map.delete('a'), map.delete('a')]).toEqual([true, false]);
    expect(left).toEqual(['A', 'A2']);
  });
});
