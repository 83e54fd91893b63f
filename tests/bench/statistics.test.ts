import { describe, expect, test } from '@jest/globals';
import { figureOf, overRounds, quantile } from '../../bench/support/statistics.ts';

describe('a figure over several rounds', () => {
  test('keeps the rounds in their order, beside the median, the lowest and the highest', () => {
    const rounds = [9, 10, 2, 100, 3];
    expect(figureOf(rounds)).toEqual({ median: 9, min: 2, max: 100, rounds: [9, 10, 2, 100, 3] });
    expect(rounds).toEqual([9, 10, 2, 100, 3]);
  });

  test('of an even number of rounds has the mean of the two in the middle as its median', () => {
    expect(figureOf([4, 1, 100, 2]).median).toBe(3);
    expect(figureOf([1, 2]).median).toBe(1.5);
    expect(figureOf([7])).toEqual({ median: 7, min: 7, max: 7, rounds: [7] });
  });

  test('orders by value, also below zero', () => {
    expect(figureOf([-0.5, 10, -20])).toMatchObject({ median: -0.5, min: -20, max: 10 });
  });

  test('is refused without rounds, or if a round is not a finite number', () => {
    expect(() => figureOf([])).toThrow(RangeError);
    expect(() => figureOf([1, Number.NaN])).toThrow('No figure comes of these rounds: [1, NaN]');
    expect(() => figureOf([1, Number.POSITIVE_INFINITY])).toThrow(RangeError);
  });

  test('is printed with the same median', () => {
    expect(overRounds([1, 2], 1)).toBe('1.5 (1.0–2.0)');
    expect(overRounds([3, 1, 2], 0)).toBe('2 (1–3)');
  });
});

test('a quantile is one of the values, by nearest rank', () => {
  expect(quantile([30, 10, 20], 0.5)).toBe(20);
  expect(quantile([1, 2, 3, 4], 0.99)).toBe(4);
});
