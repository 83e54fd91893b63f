import { expect, test } from '@jest/globals';
import { maskKeys } from '../../src/relay/upstream/upstream-request.ts';
import { type Secret, secret } from '../../src/secret.ts';

test('keys are masked, the longer first, also if they are the whole text', () => {
  const mask = maskKeys(['key', 'longer-key', 'key-2'].map(secret));
  expect(['key', 'a longer-key-2', 'key-2', 'ke', ''].map(mask)).toEqual([
    ...['[secret]', 'a [secret]-2', '[secret]', 'ke', ''],
  ]);
  expect(maskKeys([])('text')).toBe('text');
});

test('keys are opened once, however many texts are masked', () => {
  let opened = 0;
  const counted: Secret = {
    fingerprint: '0',
    open() {
      opened += 1;
      return 'key';
    },
  };
  const mask = maskKeys([counted]);
  for (let n = 0; n < 1000; n += 1) mask(`text ${n}`);
  expect(opened).toBe(1);
});
