import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { scopedSealer, sealer } from '../../src/authenticate/sessions/seal.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import { secret } from '../../src/secret.ts';

const [FIRST, SECOND] = [secret('the first secret of this test'), secret('the second secret of this test')];
const TEXT = '{"user":{"id":"ada","name":"ünï 🤖"}}';

const one = sealer([FIRST], 'sessions');
const bytesOf = (sealed: string) => Buffer.from(sealed, 'base64url');
const texts = fc.string({ unit: 'binary', maxLength: 200 });

describe('a sealed text', () => {
  test('is opened as it was, with its own name alone, and is 28 bytes longer, for nonce and tag', () => {
    fc.assert(
      fc.property(texts, texts, texts, (text, name, other) => {
        const sealed = one.seal(text, name);
        expect(sealed).toMatch(/^[\w-]+$/);
        expect(bytesOf(sealed)).toHaveLength(Buffer.byteLength(text) + 28);
        expect(one.open(sealed, name)).toBe(text);
        expect(one.open(sealed, other)).toBe(other === name ? text : undefined);
      }),
    );
    const long = 'x'.repeat(100_000);
    expect(one.open(one.seal(long, 'key'), 'key')).toBe(long);
  });

  test('does not show the text, and differs each time', () => {
    const sealed = Array.from({ length: 1000 }, () => one.seal(TEXT, 'key'));
    // The nonce must never be used twice with one key.
    expect(new Set(sealed.map((text) => text.slice(0, 16))).size).toBe(1000);
    expect(sealed.filter((text) => bytesOf(text).toString('latin1').includes('ada'))).toEqual([]);
  });

  test('does not open if any bit is changed, or if it is shorter or longer', () => {
    const bytes = bytesOf(one.seal(TEXT, 'key'));
    const open = (changed: Buffer) => one.open(changed.toString('base64url'), 'key');
    expect(open(bytes)).toBe(TEXT);
    for (let at = 0; at < bytes.length; at += 1) {
      expect([at, open(bytes.subarray(0, at))]).toEqual([at, undefined]);
      for (const bit of [1, 128]) {
        const changed = Buffer.from(bytes);
        changed.writeUInt8((bytes[at] as number) ^ bit, at);
        expect([at, open(changed)]).toEqual([at, undefined]);
      }
    }
    expect(open(Buffer.concat([bytes, Buffer.from([0])]))).toBeUndefined();
  });

  test.each(['', 'null', '{}', '🤖', '=', 'A'.repeat(1000)])('is never %j', (text) => {
    expect(one.open(text, 'key')).toBeUndefined();
  });
});

test('all secrets of a sealer open, the first one seals, and each purpose has keys of its own', () => {
  const [both, other] = [sealer([SECOND, FIRST], 'sessions'), sealer([SECOND], 'sessions')];
  expect(both.open(one.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  expect(both.open(other.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  expect(other.open(both.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  expect(one.open(both.seal(TEXT, 'key'), 'key')).toBeUndefined();
  const elsewhere = sealer([FIRST], 'something else');
  expect(elsewhere.open(one.seal(TEXT, 'key'), 'key')).toBeUndefined();
  expect(one.open(elsewhere.seal(TEXT, 'key'), 'key')).toBeUndefined();
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

  test('derives the keys of a scope again after 4096 others, or when it was forgotten', () => {
    const first = old('first');
    expect(old('first')).toBe(first);
    for (let n = 0; n < 4096; n += 1) old(String(n));
    const again = old('first');
    expect(again).not.toBe(first);
    old.forget('first');
    expect(old('first')).not.toBe(again);
    expect(old('first').open(first.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  });
});

describe('the codec of sessions', () => {
  const session = (id: string) => ({
    ...{ user: { id, name: id }, startedAt: 1, idleExpiresAt: 2_000, absoluteExpiresAt: 3_000 },
  });
  /** A codec, and how many texts it has decrypted. */
  function counted() {
    let opened = 0;
    const open = (sealed: string, name: string) => {
      opened += 1;
      return one.open(sealed, name);
    };
    return { codec: sessionCodec({ ...one, open }), decrypted: () => opened };
  }

  test('decrypts a session once, however often it is read and extended, until it is forgotten', () => {
    const { codec, decrypted } = counted();
    const text = codec.encode('key', session('ada'));
    expect(codec.decode('key', text)).toEqual(session('ada'));
    const extended = text.replace('2000', '2500');
    expect(codec.decode('key', extended)).toEqual({ ...session('ada'), idleExpiresAt: 2_500 });
    expect(decrypted()).toBe(1);
    codec.forget('key');
    expect(codec.decode('key', text)).toEqual(session('ada'));
    expect(decrypted()).toBe(2);
  });

  test('takes no remembered session for a text of another key, or for another text of its key', () => {
    const { codec } = counted();
    const text = codec.encode('key', session('ada'));
    expect(codec.decode('key', text)).toEqual(session('ada'));
    expect(codec.decode('other key', text)).toBeUndefined();
    expect(codec.decode('key', codec.encode('key', session('bob')))).toEqual(session('bob'));
    expect(codec.decode('key', text.replace(/.{8}"}$/, 'AAAAAAAA"}'))).toBeUndefined();
  });

  test('remembers the thousand sessions that were read last, and no more', () => {
    const { codec, decrypted } = counted();
    const encoded = Array.from({ length: 1001 }, (_, n) => codec.encode(`key ${n}`, session(`user ${n}`)));
    const read = (...numbers: number[]) => {
      const before = decrypted();
      for (const n of numbers) codec.decode(`key ${n}`, encoded[n] as string);
      return decrypted() - before;
    };
    const first = Array.from({ length: 1000 }, (_, n) => n);
    expect([read(...first), read(...first)]).toEqual([1000, 0]);
    // So 1 was not read for the longest time.
    expect([read(0, 1000), read(0, 2, 999, 1000), read(1), read(2, 3)]).toEqual([1, 0, 1, 1]);
  });
});
