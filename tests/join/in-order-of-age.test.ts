import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from '@jest/globals';
import { type Aged, inOrderOfAge } from '../../src/join/in-order-of-age.ts';
import { sleep } from '../support/sleep.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

interface One extends Aged<One> {
  readonly name: number;
}
const aged = (name: number): One => ({ name, order: undefined, older: undefined, newer: undefined });

test('the oldest is the first that was added and not removed', () => {
  const ages = inOrderOfAge<One>();
  const [a, b, c, d] = [aged(1), aged(2), aged(3), aged(4)];
  expect(ages.oldest()).toBeUndefined();
  for (const one of [a, b, c]) ages.add(one);
  expect(ages.oldest() === a).toBe(true);
  ages.delete(b);
  ages.delete(a);
  expect([ages.has(a), ages.has(c), ages.oldest() === c]).toEqual([false, true, true]);
  // Nothing changes if one is removed again.
  ages.delete(a);
  expect(ages.oldest() === c).toBe(true);
  ages.delete(c);
  expect(ages.oldest()).toBeUndefined();
  ages.add(d);
  expect(ages.oldest() === d).toBe(true);
});

test('so it is after many were removed', () => {
  const ages = inOrderOfAge<One>();
  for (let n = 0; n < 10_000; n += 1) {
    ages.add(aged(n));
    if (n < 50) continue;
    const oldest = ages.oldest() as One;
    expect(oldest.name).toBe(n - 50);
    ages.delete(oldest);
  }
  expect(ages.oldest()?.name).toBe(9_950);
});

test('what is removed from one order can be added to another one', () => {
  const [ages, others] = [inOrderOfAge<One>(), inOrderOfAge<One>()];
  const [a, b] = [aged(1), aged(2)];
  for (const one of [a, b]) ages.add(one);
  ages.delete(a);
  others.add(a);
  // It is not there any more.
  ages.delete(a);
  expect([ages.has(a), others.has(a)]).toEqual([false, true]);
  expect([ages.oldest() === b, others.oldest() === a]).toEqual([true, true]);
});

test('what was removed is freed though an older one stays, and the others keep their order', async () => {
  const ages = inOrderOfAge<One>();
  const [first, second] = [aged(1), aged(2)];
  ages.add(first);
  const removed = Array.from({ length: 10_000 }, (_, n) => {
    const one = aged(n);
    ages.add(one);
    if (n === 5_000) ages.add(second);
    ages.delete(one);
    return new WeakRef(one);
  });
  await sleep(0);
  collectGarbage();
  expect(removed.filter((one) => one.deref()).length).toBeLessThanOrEqual(1);
  expect(ages.oldest() === first).toBe(true);
  ages.delete(first);
  expect(ages.oldest() === second).toBe(true);
});
