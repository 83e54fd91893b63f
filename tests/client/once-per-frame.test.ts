import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { oncePerFrame } from '../../src/client/channel/channel-state.ts';

const frames = globalThis as {
  requestAnimationFrame?: (act: () => void) => number;
  cancelAnimationFrame?: (frame: number) => void;
};
beforeEach(() => void jest.useFakeTimers());
afterEach(() => {
  jest.useRealTimers();
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

test('oncePerFrame calls after a second if no frame comes, and not again in a late frame', () => {
  const frame = framesByHand();
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  frame();
  jest.advanceTimersByTime(300);
  ask();
  // The wait for the first frame is over.
  jest.advanceTimersByTime(999);
  expect(calls).toBe(1);
  jest.advanceTimersByTime(1);
  expect(calls).toBe(2);
  frame();
  expect(calls).toBe(2);
});

test('oncePerFrame calls in the next task if there are no frames at all', () => {
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  ask();
  expect(calls).toBe(0);
  jest.advanceTimersByTime(1);
  expect(calls).toBe(1);
  jest.runAllTimers();
  expect(calls).toBe(1);
});
