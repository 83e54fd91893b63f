import { scryptSync } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import {
  hashPassword,
  isPasswordHash,
  verifyPassword,
} from '../../src/authenticate/password/password-hash.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';

// Typed on a keyboard that sends the letter and its dots as two characters.
const hash = await hashPassword('pa\u0308ssword');

describe('a password hash', () => {
  test('has the PHC string format, the cost that OWASP recommends and a salt of 16 bytes', () => {
    expect(hash).toMatch(/^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
    expect(isPasswordHash(hash)).toBe(true);
  });

  test('is scrypt of the password and the salt', () => {
    const [, , , salt = '', digest = ''] = hash.split('$');
    const expected = scryptSync('pässword', Buffer.from(salt, 'base64'), 32, {
      N: 2 ** 15,
      r: 8,
      p: 3,
      maxmem: 2 ** 27,
    });
    expect(Buffer.from(digest, 'base64')).toEqual(expected);
  });

  test('matches its password in any Unicode normalization form, and no other password', async () => {
    expect(await verifyPassword('pässword', hash)).toBe(true);
    const cheap = cheapHash('pässword');
    expect(await verifyPassword('pässword', cheap)).toBe(true);
    expect(await verifyPassword('pa\u0308ssword', cheap)).toBe(true);
    expect(await verifyPassword('Pässword', cheap)).toBe(false);
    expect(await verifyPassword('', cheap)).toBe(false);
  });

  test('has a new salt each time', async () => {
    const other = await hashPassword('pässword');
    expect(other.split('$')[3]).not.toBe(hash.split('$')[3]);
    expect(other.split('$')[4]).not.toBe(hash.split('$')[4]);
  });

  test('keeps its own parameters when new ones are chosen', async () => {
    const salt = Buffer.alloc(16, 7);
    const digest = scryptSync('old', salt, 32, { N: 2 ** 4, r: 2, p: 1 });
    const old = `$scrypt$ln=4,r=2,p=1$${[salt, digest].map((b) => b.toString('base64').replace(/=+$/, '')).join('$')}`;
    expect(await verifyPassword('old', old)).toBe(true);
    expect(await verifyPassword('new', old)).toBe(false);
  });

  test.each([
    '',
    'pässword',
    '$2b$12$abcdefghijklmnopqrstuv',
    `x${hash}`,
    `${hash}x`,
    `${hash}\n`,
    hash.replace('ln=15', 'ln=x'),
  ])('is not %j', async (text) => {
    expect(isPasswordHash(text)).toBe(false);
    expect(await verifyPassword('pässword', text)).toBe(false);
  });
});
