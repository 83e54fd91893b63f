import { scryptSync } from 'node:crypto';
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import * as real from '../../src/authenticate/password/password-hash.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';

// Set before `users.ts` is loaded: the mocks count the expensive calls, and make new hashes cheap.
const hashPassword = jest.fn(async (password: string) => cheapHash(password));
const verifyPassword = jest.fn(real.verifyPassword);
jest.unstable_mockModule('../../src/authenticate/password/password-hash.ts', () => ({
  ...{ ...real, hashPassword, verifyPassword },
}));
const { listUsers, removeUser, saveUser, usersFromFile, usersOf } = await import(
  '../../src/authenticate/password/users.ts'
);

const ADA = cheapHash('ada-password');
// Typed on a keyboard that sends the letter and its dots as two characters.
const hash = await real.hashPassword('pa\u0308ssword');

describe('a password hash', () => {
  test('is scrypt of the password, with the cost that OWASP recommends and a salt of 16 bytes', () => {
    expect(hash).toMatch(/^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
    expect(real.isPasswordHash(hash)).toBe(true);
    const [, , , salt = '', digest = ''] = hash.split('$');
    const options = { N: 2 ** 15, r: 8, p: 3, maxmem: 2 ** 27 };
    const expected = scryptSync('pässword', Buffer.from(salt, 'base64'), 32, options);
    expect(Buffer.from(digest, 'base64')).toEqual(expected);
  });

  test('matches its password in any Unicode normalization form, and no other password', async () => {
    expect(await real.verifyPassword('pässword', hash)).toBe(true);
    const cheap = cheapHash('pässword');
    const typed = ['pässword', 'pa\u0308ssword', 'Pässword', ''];
    const matches = await Promise.all(typed.map((text) => real.verifyPassword(text, cheap)));
    expect(matches).toEqual([true, true, false, false]);
  });

  test('has a new salt each time', async () => {
    const other = (await real.hashPassword('pässword')).split('$');
    for (const part of [3, 4]) expect(other[part]).not.toBe(hash.split('$')[part]);
  });

  test('keeps its own parameters when new ones are chosen', async () => {
    const salt = Buffer.alloc(16, 7);
    const parts = [salt, scryptSync('old', salt, 32, { N: 2 ** 4, r: 2, p: 1 })];
    const old = `$scrypt$ln=4,r=2,p=1$${parts.map((b) => b.toString('base64').replace(/=+$/, '')).join('$')}`;
    expect([await real.verifyPassword('old', old), await real.verifyPassword('new', old)]).toEqual([
      true,
      false,
    ]);
  });

  test.each([
    ...['', 'pässword', '$2b$12$abcdefghijklmnopqrstuv', `x${hash}`, `${hash}x`, `${hash}\n`],
    hash.replace('ln=15', 'ln=x'),
  ])('is not %j', async (text) => {
    expect(real.isPasswordHash(text)).toBe(false);
    expect(await real.verifyPassword('pässword', text)).toBe(false);
  });
});

const fail = (error: Error) => {
  throw error;
};
let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-users-'));
  path = join(folder, 'users.json');
  verifyPassword.mockClear();
});
afterEach(() => rmSync(folder, { recursive: true }));

const textOf = (...names: string[]) => JSON.stringify({ users: names.map((name) => ({ name, hash: ADA })) });
const write = (...names: string[]) => writeFileSync(path, textOf(...names));
const asUser = (name: string) => ({ id: name, name });

describe('users', () => {
  test('are verified by name and password; one that does not exist is refused even with the decoy’s password', async () => {
    const users = usersOf(() => new Map([['ada', ADA]]), ADA);
    expect(await users.verify('ada', 'ada-password')).toEqual(asUser('ada'));
    expect(await users.verify('ada', 'wrong')).toBeUndefined();
    expect(await users.verify('eve', 'ada-password')).toBeUndefined();
  });

  test('need one hash of the same cost, whether the name or the password is wrong', async () => {
    writeFileSync(path, JSON.stringify({ users: [{ name: 'ada', hash }] }));
    hashPassword.mockImplementationOnce(real.hashPassword);
    const users = await usersFromFile(path, fail);
    await users.verify('ada', 'wrong');
    await users.verify('eve', 'wrong');
    const decoy = verifyPassword.mock.calls[1]?.[1];
    expect(verifyPassword.mock.calls).toEqual([
      ['wrong', hash],
      ['wrong', expect.stringMatching(/^\$scrypt\$ln=15,r=8,p=3\$/)],
    ]);
    expect(decoy).not.toBe(hash);
  });
});

describe('a users file', () => {
  test('is created for its owner only, without a temporary file beside it', async () => {
    await saveUser(path, 'ada', 'ada-password');
    expect([statSync(path).mode & 0o777, readdirSync(folder)]).toEqual([0o600, ['users.json']]);
    expect(readFileSync(path, 'utf8')).not.toContain('ada-password');
    expect(await (await usersFromFile(path, fail)).verify('ada', 'ada-password')).toEqual(asUser('ada'));
  });

  test('keeps the other users when one gets a new password or is removed, and is for its owner only then', async () => {
    write('ada', 'bob');
    chmodSync(path, 0o644);
    await saveUser(path, 'bob', 'new-password');
    expect([statSync(path).mode & 0o777, listUsers(path)]).toEqual([0o600, ['ada', 'bob']]);
    const users = await usersFromFile(path, fail);
    expect(await users.verify('bob', 'ada-password')).toBeUndefined();
    expect(await users.verify('ada', 'ada-password')).toBeDefined();
    expect([removeUser(path, 'ada'), removeUser(path, 'ada')]).toEqual([true, false]);
    expect(listUsers(path)).toEqual(['bob']);
  });

  test.each<[string, (users: string) => void]>([
    ['its modification time', (users) => writeFileSync(path, users)],
    [
      'its length',
      (users) => {
        const { atime, mtime } = statSync(path);
        writeFileSync(path, `${users} `);
        utimesSync(path, atime, mtime);
      },
    ],
    [
      'its inode',
      (users) => {
        const { atime, mtime } = statSync(path);
        writeFileSync(`${path}.new`, users);
        utimesSync(`${path}.new`, atime, mtime);
        renameSync(`${path}.new`, path);
      },
    ],
  ])('is read again if only %s has changed', async (_what, replace) => {
    write('ada');
    const past = new Date(Date.now() - 60_000);
    utimesSync(path, past, past);
    const users = await usersFromFile(path, fail);
    replace(textOf('bob'));
    expect(await users.verify('ada', 'ada-password')).toBeUndefined();
    expect(await users.verify('bob', 'ada-password')).toEqual(asUser('bob'));
  });

  test('that cannot be used after a change leaves the users unchanged, which is reported once', async () => {
    write('ada');
    const reports: string[] = [];
    const users = await usersFromFile(path, ({ message }) => reports.push(message));
    writeFileSync(path, '{"users":[{');
    for (const _ of [1, 2]) expect(await users.verify('ada', 'ada-password')).toBeDefined();
    expect(reports).toEqual([`${path} cannot be used: it is not JSON`]);
    write('bobby');
    expect(await users.verify('ada', 'ada-password')).toBeUndefined();
  });

  test.each(['', 'a b', 'a/b', 'a\n', 'é', 'x'.repeat(65)])('refuses the user name %j', async (name) => {
    await expect(saveUser(path, name, 'long enough')).rejects.toThrow(/1 to 64 letters/);
    expect(readdirSync(folder)).toEqual([]);
  });

  test.each([
    ['{', /it is not JSON/],
    ['{"users":[{"name":"ada","hash":"secret-text"}]}', /not a hash made by bot-relay user/],
    [`{"users":[{"name":"a b","hash":"${ADA}"}]}`, /a name has 1 to 64 letters/],
    [`{"users":[{"name":"ada","hash":"${ADA}","admin":true}]}`, /admin/],
    ['{}', /cannot be used/],
    ['{"users":[],"admin":1}', /admin/],
    [undefined, /: it does not exist$/],
  ])('of %j causes an error with its name but without its content at the start', async (text, message) => {
    if (text !== undefined) writeFileSync(path, text);
    const error = (await usersFromFile(path, fail).catch((thrown) => thrown)) as Error;
    expect(error.message).toMatch(message);
    expect(error.message).toContain(`${path} cannot be used`);
    expect(error.message).not.toMatch(/secret-text|scrypt/);
  });
});
