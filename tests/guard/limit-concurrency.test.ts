import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { limitConcurrency } from '../../src/pace/queues.ts';

/** Work that runs with `limitConcurrency(2)`: `order` has what was started, and `ends` what finishes it. */
function startWork() {
  const run = limitConcurrency(2);
  const order: number[] = [];
  const ends = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  const start = (n: number, { signal } = new AbortController()) =>
    run(() => {
      order.push(n);
      return new Promise<void>((resolve, reject) => ends.set(n, { resolve, reject }));
    }, signal);
  return { start, order, ends };
}

test('runs no more than the maximum at once, and the others in their order', async () => {
  const { start, order, ends } = startWork();
  const all = [1, 2, 3, 4].map((n) => start(n));
  await nextTurn();
  expect(order).toEqual([1, 2]);
  ends.get(2)?.resolve();
  await all[1];
  await nextTurn();
  expect(order).toEqual([1, 2, 3]);
  ends.get(1)?.resolve();
  ends.get(3)?.resolve();
  await Promise.all([all[0], all[2]]);
  await nextTurn();
  expect(order).toEqual([1, 2, 3, 4]);
  ends.get(4)?.resolve();
  await Promise.all(all);
  const later = [5, 6, 7].map((n) => start(n));
  await nextTurn();
  expect(order.slice(4)).toEqual([5, 6]);
  for (const n of [5, 6, 7]) {
    ends.get(n)?.resolve();
    await nextTurn();
    await nextTurn();
  }
  await Promise.all(later);
});

test('rejects at once if the signal is already aborted', async () => {
  const { start, ends } = startWork();
  const all = [start(1), start(2)];
  const givenUp = new AbortController();
  givenUp.abort(new Error('left'));
  const late = await Promise.race([
    start(3, givenUp).catch((error: Error) => error.message),
    nextTurn('waits'),
  ]);
  expect(late).toBe('left');
  for (const n of [1, 2]) ends.get(n)?.resolve();
  await Promise.all(all);
});

test('gives the place of failed work to the next', async () => {
  const { start, order, ends } = startWork();
  const all = [1, 2, 3].map((n) => start(n));
  ends.get(1)?.reject(new Error('no'));
  await expect(all[0]).rejects.toThrow('no');
  await nextTurn();
  expect(order).toEqual([1, 2, 3]);
  ends.get(2)?.resolve();
  ends.get(3)?.resolve();
  await Promise.all(all.slice(1));
});

test('removes an aborted call from the queue and keeps the order of the others', async () => {
  const { start, order, ends } = startWork();
  const givenUp = new AbortController();
  const all = [start(1), start(2), start(3, givenUp), start(4)];
  givenUp.abort(new Error('left'));
  await expect(all[2]).rejects.toThrow('left');
  ends.get(1)?.resolve();
  await nextTurn();
  expect(order).toEqual([1, 2, 4]);
  ends.get(2)?.resolve();
  ends.get(4)?.resolve();
  await Promise.all([all[0], all[1], all[3]]);
  // A call with an aborted signal takes no place.
  for (const n of [5, 6, 7]) await expect(start(n, givenUp)).rejects.toThrow('left');
  const last = start(8);
  await nextTurn();
  expect(order).toEqual([1, 2, 4, 8]);
  ends.get(8)?.resolve();
  await last;
});
