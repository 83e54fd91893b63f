import { describe, expect, test } from '@jest/globals';
import { errorWords } from '../../src/client/element/error-text.ts';
import { ARABIC } from '../../src/client/element/words/arabic.ts';
import { ENGLISH } from '../../src/client/element/words/english.ts';
import { fill, languageOf } from '../../src/client/element/words/words.ts';
import { PROBLEMS } from '../../src/errors.ts';

const names = Object.keys(ENGLISH) as (keyof typeof ENGLISH)[];
const valuesIn = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();

describe('the words of the chat', () => {
  test('have the same values in each language', () => {
    const inEnglish = names.map((name) => [name, valuesIn(ENGLISH[name])]);
    expect(names.map((name) => [name, valuesIn(ARABIC[name])])).toEqual(inEnglish);
    expect(inEnglish.flatMap(([, values]) => values).length).toBeGreaterThan(10);
  });

  test('are those of the language without its region, and English where there are none', async () => {
    const { lang, dir, words } = await languageOf('AR-eg');
    expect({ lang, dir, send: words.send }).toEqual({ lang: 'ar', dir: 'rtl', send: ARABIC.send });
    for (const other of ['de', '', 'constructor'])
      expect(await languageOf(other)).toEqual({ lang: 'en', dir: 'ltr', words: ENGLISH });
  });

  test('get their values, also if a value looks like one', () => {
    expect(fill('{a} {b} {c}', { a: '{b}', b: 2 })).toBe('{b} 2 {c}');
  });
});

describe('the words of an error', () => {
  test('are those of its code, and none say something else than the code does', () => {
    const own = [
      'cookie_blocked',
      'unreachable',
      'connection_lost',
      'connection_silent',
      'missing',
      'unexpected_response',
    ];
    const codes = [...Object.keys(PROBLEMS), ...own].sort();
    const found = Object.fromEntries(
      names.map((name) => [name, codes.filter((code) => errorWords(code) === name).join(' ')]),
    );
    expect(Object.fromEntries(Object.entries(found).filter(([, codes]) => codes))).toEqual({
      errorAway:
        'draining identity_provider_unavailable session_store_unavailable unreachable upstream_key_rejected upstream_unreachable',
      errorBusy: 'busy rate_limited too_many_streams upstream_rate_limited',
      errorCookie: 'cookie_blocked',
      errorForbidden: 'not_allowed not_your_conversation operation_not_enabled unknown_bot',
      errorLarge: 'body_too_large headers_too_large',
      errorLost: 'answer_lost connection_lost connection_silent reader_too_slow upstream_stream_broken',
      errorMissing: 'missing not_found run_not_kept run_over',
      errorPassword: 'invalid_credentials',
      errorSignedOut: 'session_ended unauthenticated',
      errorSlow: 'deadline_exceeded request_timeout upstream_timeout',
      errorTooMany: 'too_many_attempts',
      errorOther:
        'bad_request cross_site_request internal_error invalid_conversation invalid_form invalid_json invalid_logout_token invalid_query method_not_allowed sign_in_failed stopped unexpected_response unknown_host unsupported_media_type upstream_bad_response',
      errorRefused: 'upstream_refused',
    });
  });

  test('are whole sentences in each language, for people who know nothing of relays', () => {
    const ofErrors = names.filter((name) => /^error[A-Z]/.test(name) && name !== 'errorCode');
    expect(ofErrors.length).toBe(13);
    for (const name of ofErrors)
      expect([ENGLISH[name], ARABIC[name]]).toEqual([
        expect.stringMatching(/^(?!.*(relay|operator|request|service)).+\.$/i),
        expect.stringMatching(/\.$/),
      ]);
  });
});
