import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { RelayError } from '../../src/client/session/bot-client.ts';
import { resuming } from '../../src/client/transport/reconnecting.ts';

const cut = new RelayError('Cut.', { code: 'connection_lost', status: 0 });
const busy = (retryAfter: number) =>
  new RelayError('Busy.', { code: 'rate_limited', status: 429, retryAfter });

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

function resumed(isLive: boolean) {
  const position = resuming(isLive);
  position.onId('7');
  return position;
}

describe('the pause before a resumption', () => {
  test('doubles without a new id, and is longer by up to a half', () => {
    const pauses = Array.from({ length: 40 }, () => {
      const position = resumed(true);
      return Array.from({ length: 6 }, () => position.pauseAfter(cut));
    });
    for (const [at, base] of [1000, 2000, 4000, 8000, 16_000].entries()) {
      const those = pauses.map((of) => of[at] as number);
      expect(Math.min(...those)).toBeGreaterThanOrEqual(base);
      expect(Math.max(...those)).toBeLessThan(base * 1.5);
      expect(new Set(those).size).toBeGreaterThan(20);
    }
    expect(new Set(pauses.map((of) => of[5]))).toEqual(new Set([undefined]));
  });

  test.each([true, false])('is at most a minute, whatever the other side says (live: %s)', (isLive) => {
    const position = resumed(isLive);
    position.onRetry(1e12);
    expect(position.pauseAfter(cut)).toBe(60_000);
    expect(resumed(isLive).pauseAfter(busy(1e12))).toBe(60_000);
  });
});

describe('the number of resumptions', () => {
  const used = (isLive: boolean) => {
    const position = resumed(isLive);
    for (let count = 0; count < 5; count++) position.pauseAfter(cut);
    return position;
  };

  test('begins again for a live stream that has lasted for two minutes', () => {
    const position = used(true);
    expect(position.pauseAfter(cut)).toBeUndefined();
    jest.advanceTimersByTime(119_000);
    expect(position.pauseAfter(cut)).toBeUndefined();
    jest.advanceTimersByTime(121_000);
    expect(position.pauseAfter(cut)).toBeGreaterThan(0);
  });

  test('never begins again for a message', () => {
    const position = used(false);
    jest.advanceTimersByTime(121_000);
    expect(position.pauseAfter(cut)).toBeUndefined();
  });
});
