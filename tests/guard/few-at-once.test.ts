import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { fewAtOnce } from '../../src/pace/few-at-once.ts';

/** Work that is begun by `fewAtOnce(2)`; `finish` ends what was begun as the nth. */
function begun() {
  const run = fewAtOnce(2);
  const order: number[] = [];
  const ends = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  const start = (n: number, { signal } = new AbortController()) =>
    run(() => {
      order.push(n);
      return new Promise<void>((resolve, reject) => ends.set(n, { resolve, reject }));
    }, signal);
  return { start, order, ends };
}

test('no more than so many are under way, and the others follow in their order', async () => {
  const { start, order, ends } = begun();
  const all = [1, 2, 3, 4].map((n) => start(n));
  await turn();
  expect(order).toEqual([1, 2]);
  ends.get(2)?.resolve();
  await all[1];
  await turn();
  expect(order).toEqual([1, 2, 3]);
  ends.get(1)?.resolve();
  ends.get(3)?.resolve();
  await Promise.all([all[0], all[2]]);
  await turn();
  expect(order).toEqual([1, 2, 3, 4]);
  ends.get(4)?.resolve();
  await Promise.all(all);
  const later = [5, 6, 7].map((n) => start(n));
  await turn();
  expect(order.slice(4)).toEqual([5, 6]);
  for (const n of [5, 6, 7]) {
    ends.get(n)?.resolve();
    await turn();
    await turn();
  }
  await Promise.all(later);
});

test('who has given up before it comes stands in no queue', async () => {
  const { start, ends } = begun();
  const all = [start(1), start(2)];
  const given = new AbortController();
  given.abort(new Error('left'));
  const late = await Promise.race([start(3, given).catch((error: Error) => error.message), turn('waits')]);
  expect(late).toBe('left');
  for (const n of [1, 2]) ends.get(n)?.resolve();
  await Promise.all(all);
});

test('what fails makes room as well', async () => {
  const { start, order, ends } = begun();
  const all = [1, 2, 3].map((n) => start(n));
  ends.get(1)?.reject(new Error('no'));
  await expect(all[0]).rejects.toThrow('no');
  await turn();
  expect(order).toEqual([1, 2, 3]);
  ends.get(2)?.resolve();
  ends.get(3)?.resolve();
  await Promise.all(all.slice(1));
});

test('who gives up while others are worked on leaves the queue, and the order of the others as it is', async () => {
  const { start, order, ends } = begun();
  const given = new AbortController();
  const all = [start(1), start(2), start(3, given), start(4)];
  given.abort(new Error('left'));
  await expect(all[2]).rejects.toThrow('left');
  ends.get(1)?.resolve();
  await turn();
  expect(order).toEqual([1, 2, 4]);
  ends.get(2)?.resolve();
  ends.get(4)?.resolve();
  await Promise.all([all[0], all[1], all[3]]);
  // Who has given up before it comes takes no place.
  for (const n of [5, 6, 7]) await expect(start(n, given)).rejects.toThrow('left');
  const last = start(8);
  await turn();
  expect(order).toEqual([1, 2, 4, 8]);
  ends.get(8)?.resolve();
  await last;
});
