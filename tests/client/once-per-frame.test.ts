import { afterEach, expect, test } from '@jest/globals';
import { oncePerFrame } from '../../src/client/once-per-frame.ts';
import { countAwakeMs } from '../support/awake.ts';
import { sleep } from '../support/sleep.ts';

const frames = globalThis as {
  requestAnimationFrame?: (act: () => void) => number;
  cancelAnimationFrame?: (frame: number) => void;
};
afterEach(() => {
  delete frames.requestAnimationFrame;
  delete frames.cancelAnimationFrame;
});

/** Replaces the frames of the browser; the returned function draws one. */
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

test('oncePerFrame calls once in the next frame', () => {
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

test('oncePerFrame calls without a frame if none comes, and not again in a late frame', async () => {
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

test('oncePerFrame waits a full second for each frame', async () => {
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

test('oncePerFrame calls soon if there are no frames at all', async () => {
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  ask();
  const awakeMs = countAwakeMs();
  while (calls === 0) await sleep(1);
  // Much sooner than the longest wait for a frame.
  expect(awakeMs()).toBeLessThan(900);
  await sleep(20);
  expect(calls).toBe(1);
});
