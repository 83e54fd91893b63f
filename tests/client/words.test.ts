import { describe, expect, test } from '@jest/globals';
import { fill, languageOf } from '../../src/client/element/words.ts';
import { ARABIC } from '../../src/client/element/words-ar.ts';
import { ENGLISH } from '../../src/client/element/words-en.ts';
import { readSources } from '../support/sources.ts';

const names = Object.keys(ENGLISH) as (keyof typeof ENGLISH)[];
const valuesIn = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();

describe('the words of the chat', () => {
  test('have the same values in each language', () => {
    const inEnglish = names.map((name) => [name, valuesIn(ENGLISH[name])]);
    expect(names.map((name) => [name, valuesIn(ARABIC[name])])).toEqual(inEnglish);
    expect(inEnglish.flatMap(([, values]) => values).length).toBeGreaterThan(10);
  });

  test('are all used', () => {
    const text = readSources('src/client/element')
      .filter(({ path }) => !path.startsWith('words'))
      .map((source) => source.text)
      .join('\n');
    expect(names.filter((name) => !new RegExp(`\\b${name}\\b`).test(text))).toEqual([]);
  });

  test('are those of the language without its region, and English where there are none', () => {
    const { lang, dir, words } = languageOf('AR-eg');
    expect({ lang, dir, send: words.send }).toEqual({ lang: 'ar', dir: 'rtl', send: ARABIC.send });
    expect(languageOf('de')).toMatchObject({ lang: 'en', dir: 'ltr', words: ENGLISH });
    expect(languageOf('', { send: 'Go' }).words).toEqual({ ...ENGLISH, send: 'Go' });
  });

  test('get their values, also if a value looks like one', () => {
    expect(fill('{a} {b} {c}', { a: '{b}', b: 2 })).toBe('{b} 2 {c}');
  });
});
