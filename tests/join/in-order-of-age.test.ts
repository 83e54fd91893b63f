import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from '@jest/globals';
import { inOrderOfAge } from '../../src/join/in-order-of-age.ts';
import { sleep } from '../support/sleep.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

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

test('what was removed is freed though an older one stays, and the others keep their order', async () => {
  const ages = inOrderOfAge<object>();
  const [first, second] = [{}, {}];
  ages.add(first);
  const removed = Array.from({ length: 10_000 }, (_, n) => {
    const one = {};
    ages.add(one);
    if (n === 5_000) ages.add(second);
    ages.delete(one);
    return new WeakRef(one);
  });
  await sleep(0);
  collectGarbage();
  // Three values are there at most.
  expect(removed.filter((one) => one.deref()).length).toBeLessThanOrEqual(2 * 3 + 1_024);
  expect(ages.oldest()).toBe(first);
  ages.delete(first);
  expect(ages.oldest()).toBe(second);
});
