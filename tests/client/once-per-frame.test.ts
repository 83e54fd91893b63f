import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import { oncePerFrame } from '../../src/client/once-per-frame.ts';

const frames = globalThis as {
  requestAnimationFrame?: (act: () => void) => number;
  cancelAnimationFrame?: (frame: number) => void;
};
afterEach(() => {
  delete frames.requestAnimationFrame;
  delete frames.cancelAnimationFrame;
});

/** Frames that come when the test says so. */
function framesByHand() {
  const waiting = new Map<number, () => void>();
  let last = 0;
  frames.requestAnimationFrame = (act) => {
    waiting.set(++last, act);
    return last;
  };
  frames.cancelAnimationFrame = (frame) => waiting.delete(frame);
  return () => {
    const due = [...waiting.values()];
    waiting.clear();
    for (const act of due) act();
  };
}

test('calls in the next frame, once', () => {
  const frame = framesByHand();
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  ask();
  expect(calls).toBe(0);
  frame();
  expect(calls).toBe(1);
  frame();
  expect(calls).toBe(1);
  ask();
  frame();
  expect(calls).toBe(2);
});

test('calls without a frame if none comes, and not once more when one does', async () => {
  const frame = framesByHand();
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  while (calls === 0) await sleep(20);
  ask();
  frame();
  expect(calls).toBe(2);
  frame();
  expect(calls).toBe(2);
});

test('waits as long for each frame, whatever has come before', async () => {
  const frame = framesByHand();
  const calls: number[] = [];
  const ask = oncePerFrame(() => calls.push(performance.now()));
  ask();
  frame();
  await sleep(300);
  const asked = performance.now();
  ask();
  while (calls.length < 2) await sleep(20);
  expect((calls[1] as number) - asked).toBeGreaterThan(900);
});

test('calls soon where there are no frames at all', async () => {
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  ask();
  const began = performance.now();
  while (calls === 0) await sleep(1);
  // Far from as long as a frame is waited for.
  expect(performance.now() - began).toBeLessThan(900);
  await sleep(20);
  expect(calls).toBe(1);
});
