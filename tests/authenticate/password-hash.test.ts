import { scryptSync } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import {
  hashPassword,
  isPasswordHash,
  verifyPassword,
} from '../../src/authenticate/password/password-hash.ts';

// Typed on a keyboard that sends the letter and its dots apart.
const hash = await hashPassword('pa\u0308ssword');

describe('a password hash', () => {
  test('is in PHC form, with the cost that OWASP asks for and a salt of 16 bytes', () => {
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

  test('is made by its password alone, in whatever form Unicode writes it', async () => {
    expect(await verifyPassword('pässword', hash)).toBe(true);
    expect(await verifyPassword('pa\u0308ssword', hash)).toBe(true);
    expect(await verifyPassword('Pässword', hash)).toBe(false);
    expect(await verifyPassword('', hash)).toBe(false);
  });

  test('has another salt each time', async () => {
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
  ])('is nothing else: %j', async (text) => {
    expect(isPasswordHash(text)).toBe(false);
    expect(await verifyPassword('pässword', text)).toBe(false);
  });
});
