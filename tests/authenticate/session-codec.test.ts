import { expect, test } from '@jest/globals';
import { sealer } from '../../src/authenticate/sessions/seal.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import { secret } from '../../src/secret.ts';

const session = (id: string) => ({
  user: { id, name: id },
  startedAt: 1,
  idleExpiresAt: 2_000,
  absoluteExpiresAt: 3_000,
});

/** A codec, and how many texts it has decrypted. */
function counted() {
  const real = sealer([secret('the secret of the codec’s test')], 'sessions');
  let texts = 0;
  const open = (sealed: string, name: string) => {
    texts += 1;
    return real.open(sealed, name);
  };
  return { codec: sessionCodec({ ...real, open }), decrypted: () => texts };
}

test('decrypts a session once, however often it is read and extended', () => {
  const { codec, decrypted } = counted();
  const text = codec.encode('key', session('ada'));
  expect(codec.decode('key', text)).toEqual(session('ada'));
  const extended = text.replace('2000', '2500');
  expect(codec.decode('key', extended)).toEqual({ ...session('ada'), idleExpiresAt: 2_500 });
  expect(decrypted()).toBe(1);
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
  const texts = Array.from({ length: 1001 }, (_, n) => codec.encode(`key ${n}`, session(`user ${n}`)));
  const read = (...numbers: number[]) => {
    const before = decrypted();
    for (const n of numbers) codec.decode(`key ${n}`, texts[n] as string);
    return decrypted() - before;
  };
  const first = Array.from({ length: 1000 }, (_, n) => n);
  expect(read(...first)).toBe(1000);
  expect(read(...first)).toBe(0);
  // So 1 was not read for the longest time.
  expect(read(0, 1000)).toBe(1);
  expect(read(0, 2, 999, 1000)).toBe(0);
  expect(read(1)).toBe(1);
  expect(read(2, 3)).toBe(1);
});

test('forgets a session', () => {
  const { codec, decrypted } = counted();
  const text = codec.encode('key', session('ada'));
  codec.decode('key', text);
  codec.forget('key');
  expect(codec.decode('key', text)).toEqual(session('ada'));
  expect(decrypted()).toBe(2);
});
