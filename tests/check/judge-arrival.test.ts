import { describe, expect, test } from '@jest/globals';
import { judgeArrival } from '../../src/check/judge-arrival.ts';
import type { Observation } from '../../src/check/observe-stream.ts';

/** An answer of ten events that came at once, a tenth of a second after it was asked for. */
const AT_ONCE: Observation = {
  headersMs: 100,
  firstByteMs: 100,
  endMs: 101,
  events: 10,
  moments: 1,
  tornMoments: 0,
  spreadMs: 1,
  longestSilenceMs: 0,
  heartbeats: 0,
  broken: undefined,
  runError: undefined,
};
const IN_TIME = { ...AT_ONCE, moments: 10, spreadMs: 900, endMs: 1000 };

describe('an answer', () => {
  test.each<[string, Partial<Observation>, string]>([
    ['of which a part came before the rest', IN_TIME, 'in_time'],
    ['whose first event came long before all others', { moments: 2, spreadMs: 3000 }, 'in_time'],
    ['in blocks that mostly end inside of events', { moments: 5, tornMoments: 3 }, 'torn'],
    ['of which one packet was late', { moments: 5, tornMoments: 1 }, 'in_time'],
    ['that came at once after a wait', { firstByteMs: 1500 }, 'at_once'],
    ['that came at once and soon', {}, 'unclear'],
    ['of too few events', { firstByteMs: 1500, events: 2 }, 'unclear'],
  ])('%s', (_what, seen, arrival) => {
    expect(judgeArrival({ ...AT_ONCE, ...seen })).toBe(arrival);
  });

  test.each<[string, Partial<Observation>, Observation, string]>([
    ['as late as the other ended', { firstByteMs: 900 }, IN_TIME, 'at_once'],
    ['much sooner than the other ended', { firstByteMs: 300 }, IN_TIME, 'unclear'],
    ['as the other did', { firstByteMs: 900 }, AT_ONCE, 'unclear'],
  ])('that came at once, %s', (_what, seen, direct, arrival) => {
    expect(judgeArrival({ ...AT_ONCE, ...seen }, direct)).toBe(arrival);
  });
});
