import { Readable } from 'node:stream';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { arrivalFinding, judgeArrival } from '../../src/check/judge-arrival.ts';
import { type Observation, observeStream } from '../../src/check/observe-stream.ts';

/** An answer of ten events that came at once, 0.1 s after the request. */
const AT_ONCE: Observation = {
  headersMs: 100,
  firstByteMs: 100,
  endMs: 101,
  ids: 0,
  events: 10,
  moments: 1,
  tornMoments: 0,
  spreadMs: 1,
  longestSilenceMs: 0,
  heartbeats: 0,
  broken: undefined,
  runError: undefined,
  failure: undefined,
};
const IN_TIME = { ...AT_ONCE, moments: 10, spreadMs: 900, endMs: 1000 };

describe('an answer', () => {
  test.each<[string, Partial<Observation>, string]>([
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

  test.each<[string, Partial<Observation>, Observation, string]>([
    ['when the direct one had nearly ended', { firstByteMs: 900 }, IN_TIME, 'at_once'],
    ['long before the direct one ended', { firstByteMs: 300 }, IN_TIME, 'unclear'],
    ['as the direct one did', { firstByteMs: 900 }, AT_ONCE, 'unclear'],
  ])('that came at once, %s, is judged by comparison', (_what, seen, direct, arrival) => {
    expect(judgeArrival({ ...AT_ONCE, ...seen }, direct)).toBe(arrival);
  });
});

describe('a stream of which each piece comes after a pause', () => {
  afterEach(() => void jest.restoreAllMocks());

  test.each([
    [9, 'ok', 'not buffered'],
    [13, 'problem', 'blocks that end inside of events'],
  ])('in pieces of %i bytes is found to be: %s', async (bytes, state, says) => {
    let ms = 0;
    jest.spyOn(performance, 'now').mockImplementation(() => (ms += 60));
    const text = [1, 2, 3, 4].map((n) => `data: ${n}\n\n`).join('');
    const pieces = text.match(new RegExp(`[^]{1,${bytes}}`, 'g')) ?? [];
    const seen = await observeStream(Readable.from(pieces.map((piece) => Buffer.from(piece))), 0);
    expect(arrivalFinding(seen, { between: 'a proxy', advice: '' })).toMatchObject({
      state,
      says: expect.stringContaining(says),
    });
  });
});
