import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { type Arrival, arrivalVerdict, judgeArrival } from '../../src/check/judge-stream.ts';
import { observeStream } from '../../src/check/observe-stream.ts';

/** An answer of ten events that came at once, 0.1 s after the request. */
const AT_ONCE: Arrival = { firstByteMs: 100, events: 10, moments: 1, tornMoments: 0, spreadMs: 1 };
const IN_TIME = { ...AT_ONCE, moments: 10, spreadMs: 900 };

describe('an answer', () => {
  test.each<[string, Partial<Arrival>, string]>([
    ['that came in parts', IN_TIME, 'in_time'],
    ['whose first event came long before the others', { moments: 2, spreadMs: 3000 }, 'in_time'],
    ['in blocks that mostly end inside of events', { moments: 5, tornMoments: 3 }, 'torn'],
    ['with one late packet', { moments: 5, tornMoments: 1 }, 'in_time'],
    ['that came at once after a wait', { firstByteMs: 1500 }, 'at_once'],
    ['that came at once without a wait', {}, 'unclear'],
    ['with too few events', { firstByteMs: 1500, events: 2 }, 'unclear'],
  ])('%s is judged correctly', (_what, seen, arrival) => {
    expect(judgeArrival({ ...AT_ONCE, ...seen })).toBe(arrival);
  });

  test.each<[string, number, Arrival, string]>([
    ['when the direct one had nearly ended', 900, IN_TIME, 'at_once'],
    ['long before the direct one ended', 300, IN_TIME, 'unclear'],
    ['as the direct one did', 900, AT_ONCE, 'unclear'],
  ])('that came at once, %s, is judged by comparison', (_what, firstByteMs, direct, arrival) => {
    expect(judgeArrival({ ...AT_ONCE, firstByteMs }, direct)).toBe(arrival);
  });
});

describe('a stream of which each piece comes after a pause', () => {
  afterEach(() => void jest.restoreAllMocks());

  test.each([
    [9, '\n', 'ok', 'not buffered'],
    [13, '\n', 'problem', 'blocks that end inside of events'],
    [11, '\r\n', 'ok', 'not buffered'],
    [9, '\r', 'ok', 'not buffered'],
  ])(
    'in pieces of %i bytes with lines that end in %j is found to be: %s',
    async (bytes, end, state, says) => {
      let ms = 0;
      jest.spyOn(performance, 'now').mockImplementation(() => (ms += 60));
      const text = [1, 2, 3, 4].map((n) => `data: ${n}${end}${end}`).join('');
      const pieces = text.match(new RegExp(`[^]{1,${bytes}}`, 'g')) ?? [];
      const response = Readable.from(pieces.map((piece) => Buffer.from(piece))) as IncomingMessage;
      const seen = await observeStream({ response, sentAt: 0 }, { limitMs: 60_000 });
      expect(arrivalVerdict(seen, { between: 'a proxy', advice: '' })).toMatchObject({
        state,
        says: expect.stringContaining(says),
      });
    },
  );
});
