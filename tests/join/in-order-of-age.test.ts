import { expect, test } from '@jest/globals';
import { inOrderOfAge } from '../../src/join/in-order-of-age.ts';

test('the oldest is the first that was added and not removed', () => {
  const ages = inOrderOfAge<string>();
  expect(ages.oldest()).toBeUndefined();
  for (const one of ['a', 'b', 'c']) ages.add(one);
  expect(ages.oldest()).toBe('a');
  ages.delete('b');
  ages.delete('a');
  expect([ages.has('a'), ages.has('c'), ages.oldest()]).toEqual([false, true, 'c']);
  ages.delete('c');
  expect(ages.oldest()).toBeUndefined();
  ages.add('d');
  expect(ages.oldest()).toBe('d');
});

test('so it is after many were removed', () => {
  const ages = inOrderOfAge<number>();
  for (let n = 0; n < 10_000; n += 1) {
    ages.add(n);
    if (n < 50) continue;
    const oldest = ages.oldest();
    expect(oldest).toBe(n - 50);
    ages.delete(oldest as number);
  }
  expect(ages.oldest()).toBe(9_950);
});
