import { describe, expect, test } from '@jest/globals';
import { scopedSealer, sealer } from '../../src/authenticate/sessions/seal.ts';
import { secret } from '../../src/secret.ts';

const [FIRST, SECOND] = [secret('the first secret of this test'), secret('the second secret of this test')];
const TEXT = '{"user":{"id":"ada","name":"ünï 🤖"}}';

const one = sealer([FIRST], 'sessions');
const bytesOf = (sealed: string) => Buffer.from(sealed, 'base64url');

describe('a sealed text', () => {
  test.each([TEXT, '', '\u0000', 'x'.repeat(100_000)])('is opened as it was', (text) => {
    expect(one.open(one.seal(text, 'key'), 'key')).toBe(text);
  });

  test('does not show the text, and differs each time', () => {
    const sealed = Array.from({ length: 1000 }, () => one.seal(TEXT, 'key'));
    expect(new Set(sealed).size).toBe(1000);
    // The nonce must never be used twice with one key.
    expect(new Set(sealed.map((text) => text.slice(0, 16))).size).toBe(1000);
    for (const text of sealed) {
      expect(text).toMatch(/^[\w-]+$/);
      expect(bytesOf(text).toString('latin1')).not.toContain('ada');
    }
  });

  test('is 28 bytes longer than the text, for nonce and tag', () => {
    expect(bytesOf(one.seal(TEXT, 'key'))).toHaveLength(Buffer.byteLength(TEXT) + 28);
  });

  test('opens only with its own name', () => {
    const sealed = one.seal(TEXT, 'key');
    for (const name of ['kex', 'ke', 'key ', '']) expect(one.open(sealed, name)).toBeUndefined();
  });

  test('does not open if any bit is changed', () => {
    const bytes = bytesOf(one.seal(TEXT, 'key'));
    for (let at = 0; at < bytes.length; at += 1) {
      for (const bit of [1, 128]) {
        const changed = Buffer.from(bytes);
        changed.writeUInt8((bytes[at] as number) ^ bit, at);
        expect([at, one.open(changed.toString('base64url'), 'key')]).toEqual([at, undefined]);
      }
    }
  });

  test('does not open if it is shorter or longer', () => {
    const bytes = bytesOf(one.seal('text', 'key'));
    for (let length = 0; length < bytes.length; length += 1)
      expect(one.open(bytes.subarray(0, length).toString('base64url'), 'key')).toBeUndefined();
    const longer = Buffer.concat([bytes, Buffer.from([0])]);
    expect(one.open(longer.toString('base64url'), 'key')).toBeUndefined();
  });

  test.each(['', 'null', '{}', '🤖', '=', 'A'.repeat(1000)])('cannot be %j, which does not open', (text) => {
    expect(one.open(text, 'key')).toBeUndefined();
  });
});

describe('the secrets of a sealer', () => {
  const [both, other] = [sealer([SECOND, FIRST], 'sessions'), sealer([SECOND], 'sessions')];

  test('all open', () => {
    expect(both.open(one.seal(TEXT, 'key'), 'key')).toBe(TEXT);
    expect(both.open(other.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  });

  test('seal with the first', () => {
    const sealed = both.seal(TEXT, 'key');
    expect(other.open(sealed, 'key')).toBe(TEXT);
    expect(one.open(sealed, 'key')).toBeUndefined();
  });

  test('open nothing that was sealed for another purpose', () => {
    const elsewhere = sealer([FIRST], 'something else');
    expect(elsewhere.open(one.seal(TEXT, 'key'), 'key')).toBeUndefined();
    expect(one.open(elsewhere.seal(TEXT, 'key'), 'key')).toBeUndefined();
  });
});

describe('a scoped sealer', () => {
  const [both, old] = [scopedSealer([SECOND, FIRST], 'runs'), scopedSealer([FIRST], 'runs')];

  test('has keys of its own for each scope, from each of its secrets', () => {
    const sealed = old('a').seal(TEXT, 'key');
    expect(both('a').open(sealed, 'key')).toBe(TEXT);
    expect(old('b').open(sealed, 'key')).toBeUndefined();
    expect(scopedSealer([FIRST], 'something else')('a').open(sealed, 'key')).toBeUndefined();
    expect(old('a').open(both('a').seal(TEXT, 'key'), 'key')).toBeUndefined();
  });

  test('derives the keys of a scope again after 4096 others', () => {
    const first = old('first');
    expect(old('first')).toBe(first);
    for (let n = 0; n < 4096; n += 1) old(String(n));
    expect(old('first')).not.toBe(first);
    expect(old('first').open(first.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  });

  test('derives the keys of a scope again that was forgotten', () => {
    const first = old('forgotten');
    old.forget('forgotten');
    expect(old('forgotten')).not.toBe(first);
    expect(old('forgotten').open(first.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  });
});
