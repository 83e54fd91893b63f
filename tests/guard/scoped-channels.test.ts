import { expect, test } from '@jest/globals';
import { scopedChannelId } from '../../src/guard/scoped-channels.ts';
import { secret } from '../../src/secret.ts';

const SECRET = secret('a secret of at least thirty-two characters');
const OWNER = { realm: 'password', userId: 'ada', id: 'c1' };

test('the upstream id is the one that another program computes', () => {
  // Computed by another program: HMAC-SHA-256 of each text behind its length in four bytes.
  expect(scopedChannelId(SECRET, OWNER)).toBe(
    '5e375d018739fdd5edd47e89dff8e9731b19211a39e886d035d34d5281278429',
  );
});

test.each([
  ['another secret', secret('another secret of at least thirty-two characters'), OWNER],
  ['another realm', SECRET, { ...OWNER, realm: 'guest' }],
  ['another user', SECRET, { ...OWNER, userId: 'bob' }],
  ['another id', SECRET, { ...OWNER, id: 'C1' }],
  ['texts that are divided elsewhere', SECRET, { realm: 'passworda', userId: 'da', id: 'c1' }],
  ['an id that looks like two texts', SECRET, { ...OWNER, userId: 'ad', id: 'ac1' }],
  ['another Unicode form', SECRET, { ...OWNER, id: 'c\uff11' }],
])('%s gives another id', (_difference, key, owner) => {
  expect(scopedChannelId(key, owner)).not.toBe(scopedChannelId(SECRET, OWNER));
});

test.each(['c1', 'x'.repeat(256), '😀"\\\u0000', 'ÀÉ'])(
  'the id of %j has 64 characters that no service changes',
  (id) => {
    expect(scopedChannelId(SECRET, { ...OWNER, id })).toMatch(/^[0-9a-f]{64}$/);
  },
);
