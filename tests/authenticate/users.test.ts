import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import * as passwordHash from '../../src/authenticate/password/password-hash.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';

// Set before `users.ts` is loaded: the mocks count the expensive calls, and make new hashes cheap.
const hashPassword = jest.fn(async (password: string) => cheapHash(password));
const verifyPassword = jest.fn(passwordHash.verifyPassword);
jest.unstable_mockModule('../../src/authenticate/password/password-hash.ts', () => ({
  ...passwordHash,
  hashPassword,
  verifyPassword,
}));
const { listUsers, removeUser, saveUser, usersFromFile, usersOf } = await import(
  '../../src/authenticate/password/users.ts'
);

const fail = (error: Error) => {
  throw error;
};

const ADA = cheapHash('ada-password');
const COST = /^\$scrypt\$ln=15,r=8,p=3\$/;

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-users-'));
  path = join(folder, 'users.json');
  verifyPassword.mockClear();
});
afterEach(() => rmSync(folder, { recursive: true }));

const write = (users: unknown) => writeFileSync(path, JSON.stringify(users));

describe('users', () => {
  test('are verified by name and password', async () => {
    const users = usersOf(() => new Map([['ada', ADA]]), ADA);
    expect(await users.verify('ada', 'ada-password')).toEqual({ id: 'ada', name: 'ada' });
    expect(await users.verify('ada', 'wrong')).toBeUndefined();
  });

  test('that do not exist are refused even with the decoy’s password', async () => {
    const users = usersOf(() => new Map(), ADA);
    expect(await users.verify('eve', 'ada-password')).toBeUndefined();
  });

  test('need one hash of the same cost, whether the name or the password is wrong', async () => {
    const hash = await passwordHash.hashPassword('ada-password');
    write({ users: [{ name: 'ada', hash }] });
    hashPassword.mockImplementationOnce(passwordHash.hashPassword);
    const users = await usersFromFile(path, fail);
    await users.verify('ada', 'wrong');
    await users.verify('eve', 'wrong');
    expect(verifyPassword.mock.calls).toEqual([
      ['wrong', hash],
      ['wrong', expect.stringMatching(COST)],
    ]);
    expect(verifyPassword.mock.calls[1]?.[1]).not.toBe(hash);
  });
});

describe('a users file', () => {
  test('is created for its owner only, without a temporary file beside it', async () => {
    await saveUser(path, 'ada', 'ada-password');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readdirSync(folder)).toEqual(['users.json']);
    expect(readFileSync(path, 'utf8')).not.toContain('ada-password');
    expect(await (await usersFromFile(path, fail)).verify('ada', 'ada-password')).toEqual({
      id: 'ada',
      name: 'ada',
    });
  });

  test('is readable by its owner only after a change', async () => {
    write({ users: [] });
    chmodSync(path, 0o644);
    await saveUser(path, 'ada', 'ada-password');
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test('keeps the other users when one gets a new password or is removed', async () => {
    write({
      users: [
        { name: 'ada', hash: ADA },
        { name: 'bob', hash: ADA },
      ],
    });
    await saveUser(path, 'bob', 'new-password');
    expect(listUsers(path)).toEqual(['ada', 'bob']);
    const users = await usersFromFile(path, fail);
    expect(await users.verify('bob', 'ada-password')).toBeUndefined();
    expect(await users.verify('ada', 'ada-password')).toBeDefined();
    expect(removeUser(path, 'ada')).toBe(true);
    expect(removeUser(path, 'ada')).toBe(false);
    expect(listUsers(path)).toEqual(['bob']);
  });

  test('is read again when it changes', async () => {
    write({ users: [{ name: 'ada', hash: ADA }] });
    const users = await usersFromFile(path, fail);
    write({ users: [{ name: 'bobby', hash: ADA }] });
    expect(await users.verify('ada', 'ada-password')).toBeUndefined();
    expect(await users.verify('bobby', 'ada-password')).toEqual({ id: 'bobby', name: 'bobby' });
  });

  test.each<[string, (users: string, stats: Stats) => void]>([
    ['its modification time', (users) => writeFileSync(path, users)],
    [
      'its length',
      (users, { atime, mtime }) => {
        writeFileSync(path, `${users} `);
        utimesSync(path, atime, mtime);
      },
    ],
    [
      'its inode',
      (users, { atime, mtime }) => {
        writeFileSync(`${path}.new`, users);
        utimesSync(`${path}.new`, atime, mtime);
        renameSync(`${path}.new`, path);
      },
    ],
  ])('is read again if only %s has changed', async (_what, replace) => {
    write({ users: [{ name: 'ada', hash: ADA }] });
    const past = new Date(Date.now() - 60_000);
    utimesSync(path, past, past);
    const users = await usersFromFile(path, fail);
    replace(JSON.stringify({ users: [{ name: 'bob', hash: ADA }] }), statSync(path));
    expect(await users.verify('ada', 'ada-password')).toBeUndefined();
    expect(await users.verify('bob', 'ada-password')).toBeDefined();
  });

  test('that cannot be used after a change leaves the users unchanged, which is reported once', async () => {
    write({ users: [{ name: 'ada', hash: ADA }] });
    const reports: string[] = [];
    const users = await usersFromFile(path, ({ message }) => reports.push(message));
    writeFileSync(path, '{"users":[{');
    expect(await users.verify('ada', 'ada-password')).toBeDefined();
    expect(await users.verify('ada', 'ada-password')).toBeDefined();
    expect(reports).toEqual([`${path} cannot be used: it is not JSON`]);
    write({ users: [{ name: 'bobby', hash: ADA }] });
    expect(await users.verify('ada', 'ada-password')).toBeUndefined();
  });

  test.each(['', 'a b', 'a/b', 'a\n', 'é', 'x'.repeat(65)])('refuses the user name %j', async (name) => {
    await expect(saveUser(path, name, 'long enough')).rejects.toThrow(/1 to 64 letters/);
    expect(readdirSync(folder)).toEqual([]);
  });

  test.each([
    ['is not JSON', '{', /it is not JSON/],
    [
      'has a plain password',
      '{"users":[{"name":"ada","hash":"secret-text"}]}',
      /not a hash made by bot-relay user/,
    ],
    ['has a bad name', `{"users":[{"name":"a b","hash":"${ADA}"}]}`, /a name has 1 to 64 letters/],
    ['has an unknown field in a user', `{"users":[{"name":"ada","hash":"${ADA}","admin":true}]}`, /admin/],
    ['has no users', '{}', /cannot be used/],
    ['has an unknown field', '{"users":[],"admin":1}', /admin/],
  ])(
    'that %s causes an error with its name but without its content at the start',
    async (_what, text, message) => {
      writeFileSync(path, text);
      const error = await usersFromFile(path, fail).catch((thrown: Error) => thrown);
      expect(error).toMatchObject({ message: expect.stringMatching(message) });
      expect((error as Error).message).toContain(path);
      expect((error as Error).message).not.toMatch(/secret-text|scrypt/);
    },
  );

  test('that is missing causes an error with its name at the start', async () => {
    await expect(usersFromFile(path, fail)).rejects.toThrow(`${path} cannot be used: it does not exist`);
  });
});
