import { describe, expect, test } from '@jest/globals';
import { keysOf, overlap, patternsFor, rateLimitOf } from '../../src/bots/bot-settings.ts';
import { secret } from '../../src/secret.ts';

describe('the patterns that match', () => {
  test('a bot are in order, the most specific first', () => {
    expect(patternsFor('acme/helper')).toEqual(['acme/helper', 'acme/*', '*/helper', '*/*']);
  });

  test('a pattern are those that match all that it matches', () => {
    expect(patternsFor('acme/*')).toEqual(['acme/*', '*/*']);
    expect(patternsFor('*/helper')).toEqual(['*/helper', '*/*']);
    expect(patternsFor('*/*')).toEqual(['*/*']);
  });
});

test.each([
  ['acme/helper', 'acme/helper', true],
  ['acme/*', 'acme/helper', true],
  ['acme/*', '*/helper', true],
  ['*/*', 'acme/helper', true],
  ['acme/helper', 'acme/other', false],
  ['acme/*', 'other/*', false],
  ['*/helper', 'acme/other', false],
])('%s and %s overlap: %s', (one, other, expected) => {
  expect(overlap(one, other)).toBe(expected);
  expect(overlap(other, one)).toBe(expected);
});

describe('the settings of a bot', () => {
  const keys = Object.fromEntries(
    ['all', 'exact', 'namespace', 'name'].map((name) => [name, [secret(name)]]),
  );
  const settings = {
    apiKeys: keys.all ?? [],
    own: {
      'acme/helper': { rateLimit: 1 },
      'acme/exact': { keys: keys.exact ?? [] },
      'acme/*': { keys: keys.namespace ?? [], rateLimit: 2 },
      '*/helper': { keys: keys.name ?? [] },
      '*/*': { rateLimit: 3 },
    },
  };

  test.each([
    ['acme/helper', 'namespace', 1],
    ['acme/exact', 'exact', 2],
    ['acme/other', 'namespace', 2],
    ['other/helper', 'name', 3],
    ['other/other', 'all', 3],
  ])(
    'of %s are the keys "%s" and the limit %d, each from the most specific entry that has it',
    (bot, expected, limit) => {
      expect(keysOf(settings, bot)).toBe(keys[expected]);
      expect(rateLimitOf(settings, bot)).toBe(limit);
    },
  );

  test('may have no limit', () => {
    expect(rateLimitOf({ apiKeys: [], own: {} }, 'acme/helper')).toBeUndefined();
  });
});
