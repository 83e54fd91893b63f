import { expect, test } from '@jest/globals';
import { waitingLines } from '../../src/pace/waiting-lines.ts';

const ALWAYS = new AbortController().signal;

test('a line counts everybody in it, with the one whose turn it is', async () => {
  const lines = waitingLines();
  expect(lines.length('a')).toBe(0);
  const leave = await lines.enter('a', ALWAYS);
  expect(lines.length('a')).toBe(1);
  const second = lines.enter('a', ALWAYS);
  expect([lines.length('a'), lines.length('b')]).toEqual([2, 0]);
  leave();
  expect(lines.length('a')).toBe(1);
  (await second)();
  expect(lines.length('a')).toBe(0);
});

test('whoever has gone before does not get into a line', async () => {
  const lines = waitingLines();
  await expect(lines.enter('a', AbortSignal.abort('gone'))).rejects.toBe('gone');
  expect(lines.length('a')).toBe(0);
});

test('whoever goes while standing in line leaves the others in their order', async () => {
  const lines = waitingLines();
  const leave = await lines.enter('a', ALWAYS);
  const gone = new AbortController();
  const second = lines.enter('a', gone.signal);
  const third = lines.enter('a', ALWAYS);
  gone.abort('gone');
  await expect(second).rejects.toBe('gone');
  leave();
  (await third)();
  expect(lines.length('a')).toBe(0);
});

test('whoever goes when it is their turn takes nobody else out of the line', async () => {
  const lines = waitingLines();
  const leave = await lines.enter('a', ALWAYS);
  const gone = new AbortController();
  const second = lines.enter('a', gone.signal);
  const third = lines.enter('a', ALWAYS);
  leave();
  const leaveSecond = await second;
  gone.abort('gone');
  expect(lines.length('a')).toBe(2);
  leaveSecond();
  (await third)();
});
