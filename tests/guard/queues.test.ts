import { expect, test } from '@jest/globals';
import { createQueues } from '../../src/pace/queues.ts';

const ALWAYS = new AbortController().signal;

test('the length of a queue includes the caller whose turn it is', async () => {
  const queues = createQueues();
  expect(queues.length('a')).toBe(0);
  const leave = await queues.enter('a', ALWAYS);
  expect(queues.length('a')).toBe(1);
  const second = queues.enter('a', ALWAYS);
  expect([queues.length('a'), queues.length('b')]).toEqual([2, 0]);
  leave();
  expect(queues.length('a')).toBe(1);
  (await second)();
  expect(queues.length('a')).toBe(0);
});

test('a caller with an aborted signal does not enter the queue', async () => {
  const queues = createQueues();
  await expect(queues.enter('a', AbortSignal.abort('stopped'))).rejects.toBe('stopped');
  expect(queues.length('a')).toBe(0);
});

test('a caller that aborts while it waits leaves the others in their order', async () => {
  const queues = createQueues();
  const leave = await queues.enter('a', ALWAYS);
  const stop = new AbortController();
  const second = queues.enter('a', stop.signal);
  const third = queues.enter('a', ALWAYS);
  stop.abort('stopped');
  await expect(second).rejects.toBe('stopped');
  leave();
  (await third)();
  expect(queues.length('a')).toBe(0);
});

test('a caller that aborts when it is its turn removes no other caller from the queue', async () => {
  const queues = createQueues();
  const leave = await queues.enter('a', ALWAYS);
  const stop = new AbortController();
  const second = queues.enter('a', stop.signal);
  const third = queues.enter('a', ALWAYS);
  leave();
  const leaveSecond = await second;
  stop.abort('stopped');
  expect(queues.length('a')).toBe(2);
  leaveSecond();
  (await third)();
});
