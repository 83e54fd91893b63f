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
import { PassThrough, Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { newPassword } from '../../src/authenticate/password/ask-password.ts';
import * as real from '../../src/authenticate/password/password-hash.ts';
import { call } from '../harness/clients/call.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

// Set before `users.ts` is loaded, by whatever file: the mocks count the expensive calls, and make new hashes cheap.
const hashPassword = jest.fn(async (password: string) => cheapHash(password));
const verifyPassword = jest.fn(real.verifyPassword);
jest.unstable_mockModule('../../src/authenticate/password/password-hash.ts', () => ({
  ...{ ...real, hashPassword, verifyPassword },
}));
const { listUsers, removeUser, saveUser, usersFromFile, usersOf } = await import(
  '../../src/authenticate/password/users.ts'
);
const { userCommand } = await import('../../src/commands/user.ts');
const { runCommand, stopCommands } = await import('../harness/relay/commands.ts');
const { inFrontOf } = await import('../harness/relay/process.ts');
const { OTHER_USER, startRelay, USER } = await import('../harness/relay/relay.ts');

const ADA = cheapHash('ada-password');
// Typed on a keyboard that sends the letter and its dots as two characters.
const hash = await real.hashPassword('pa\u0308ssword');

describe('a password hash', () => {
  test('is scrypt of the password, with the cost that OWASP recommends and a new salt of 16 bytes', async () => {
    expect(hash).toMatch(/^\$scrypt\$ln=15,r=8,p=3\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
    expect(real.isPasswordHash(hash)).toBe(true);
    const [, , , salt = '', digest = ''] = hash.split('$');
    const options = { N: 2 ** 15, r: 8, p: 3, maxmem: 2 ** 27 };
    const expected = scryptSync('pässword', Buffer.from(salt, 'base64'), 32, options);
    expect(Buffer.from(digest, 'base64')).toEqual(expected);
    const salts = [await real.hashPassword('x', real.QUICK), await real.hashPassword('x', real.QUICK)];
    expect(new Set(salts.map((one) => one.split('$')[3])).size).toBe(2);
  });

  test('matches its password in any Unicode normalization form, with its own parameters, and no other password', async () => {
    const own = await real.hashPassword('pässword', { ln: 4, r: 2, p: 1 });
    const typed = ['pässword', 'pa\u0308ssword', 'Pässword', ''];
    const matches = await Promise.all(typed.map((text) => real.verifyPassword(text, own)));
    expect(matches).toEqual([true, true, false, false]);
  });

  test('is no other text', async () => {
    const others = ['', 'pässword', '$2b$12$abcdefghijklmnopqrstuv', `x${hash}`, `${hash}x`, `${hash}\n`];
    for (const text of [...others, hash.replace('ln=15', 'ln=x')])
      expect([real.isPasswordHash(text), await real.verifyPassword('pässword', text)]).toEqual([
        false,
        false,
      ]);
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
afterAll(() => stopCommands());
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

  test('refuses a user name that is empty, long, or has other characters', async () => {
    for (const name of ['', 'a b', 'a/b', 'a\n', 'é', 'x'.repeat(65)])
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

/** An output that keeps what is printed, and says when. */
function output() {
  const stream = new PassThrough({ encoding: 'utf8' });
  let text = '';
  stream.on('data', (part) => {
    text += part;
  });
  return { stream, text: () => text };
}

/** Runs the command with `input` piped into it. */
async function run(args: string[], input = '') {
  const { stream, text } = output();
  const code = await userCommand(args, path, { input: Readable.from([Buffer.from(input)]), output: stream });
  return { code, text: text() };
}

/** Runs `add ada` at a terminal that answers each question with the next of `answers`, a key per read. */
async function typeAnswers(...answers: string[]) {
  const raw: boolean[] = [];
  const input = Object.assign(new PassThrough(), {
    isTTY: true,
    setRawMode: (on: boolean) => void raw.push(on),
  });
  const { stream, text } = output();
  stream.on('data', () => {
    if (text().endsWith(': '))
      setImmediate(() => [...(answers.shift() ?? '')].forEach((key) => void input.write(key)));
  });
  const code = await userCommand(['add', 'ada'], path, { input, output: stream });
  return { code, text: text(), raw, paused: input.isPaused() };
}

const knows = async (password: string) =>
  (await (await usersFromFile(path, fail)).verify('ada', password)) !== undefined;

describe('bot-relay user add, piped', () => {
  test.each([
    ['as it is', 'long enough', 'long enough'],
    ['without the Windows line end', 'long enough\r\n', 'long enough'],
    ['with only the last line end dropped', 'long enough \n\n', 'long enough \n'],
  ])('takes the password %s', async (_how, input, password) => {
    expect(await newPassword({ input: Readable.from([input]), output: new PassThrough() })).toBe(password);
  });

  test('refuses a password of fewer than 8 characters, a bad name and a file that cannot be used', async () => {
    const short = { code: 1, text: 'A password has at least 8 characters.\n' };
    expect(await run(['add', 'ada'], '1234567\n')).toEqual(short);
    expect(() => listUsers(path)).toThrow();
    const refused = (why: RegExp) => ({ code: 1, text: expect.stringMatching(why) });
    expect(await run(['add', 'a b'], 'long enough')).toEqual(refused(/letters/));
    writeFileSync(path, '{');
    expect(await run(['add', 'ada'], 'long enough')).toEqual(refused(/not JSON/));
  });
});

describe('bot-relay user add, at a terminal', () => {
  test('asks twice, does not show the password, and restores the terminal', async () => {
    expect(await typeAnswers('typed-word\r', 'typed-word\n')).toEqual({
      code: 0,
      text: `Password: \nOnce more: \nada can sign in now (${path}).\n`,
      raw: [true, false, true, false],
      paused: true,
    });
    expect(await knows('typed-word')).toBe(true);
  });

  test('handles backspace', async () => {
    expect((await typeAnswers('typee\u007fd-wör\bö\u007f\u007förd\r', 'typed-wörd\r')).code).toBe(0);
    expect(await knows('typed-wörd')).toBe(true);
  });

  test.each([
    [
      'two passwords that differ',
      ['typed-word\r', 'typed-ward\r'],
      'Once more: \nThe two passwords differ.\n',
    ],
    ['Ctrl-C', ['typed\u0003'], 'Cancelled.\n'],
    ['Ctrl-D', ['typed\u0004'], 'Cancelled.\n'],
  ])('saves nothing after %s, and restores the terminal', async (_what, answers, text) => {
    const done = await typeAnswers(...answers);
    expect(done).toMatchObject({ code: 1, text: `Password: \n${text}` });
    expect(done.raw.at(-1)).toBe(false);
    expect(() => listUsers(path)).toThrow();
  });
});

describe('bot-relay user', () => {
  test('lists the names and removes one', async () => {
    expect(await run(['list'])).toEqual({ code: 1, text: `${path} cannot be used: it does not exist\n` });
    await run(['add', 'ada'], 'long enough');
    await run(['add', 'bob'], 'long enough');
    expect(await run(['list'])).toEqual({ code: 0, text: 'ada\nbob\n' });
    const removed = { code: 0, text: expect.stringMatching(/^ada can no longer/) };
    expect(await run(['remove', 'ada'])).toEqual(removed);
    expect(await run(['remove', 'ada'])).toEqual({ code: 1, text: 'No user ada.\n' });
    expect(await run(['list'])).toEqual({ code: 0, text: 'bob\n' });
  });

  test('prints its usage for other arguments', async () => {
    for (const args of [[], ['add'], ['list', 'ada'], ['add', 'ada', 'bob'], ['change', 'ada'], ['unlock']])
      expect(await run(args)).toEqual({
        code: 64,
        text: expect.stringMatching(/^Usage: bot-relay user add/),
      });
    expect(() => listUsers(path)).toThrow();
  });
});

describe('bot-relay user unlock', () => {
  const SERVICE = 'http://127.0.0.1:9';
  const unlock = (environment: Record<string, string>, ...args: string[]) =>
    runCommand({ args: ['user', 'unlock', ...args], environment: { ...inFrontOf(SERVICE), ...environment } });

  test.each([
    [
      {},
      'Without REDIS_URL each relay counts failed sign-ins in its own memory: restart it to unlock ada.\n',
    ],
    [{ REDIS_URL: 'redis://127.0.0.1:9' }, 'Redis cannot be used; npx bot-relay check says why.\n'],
  ])('says why it can do nothing: %j', async (environment, stdout) => {
    expect(await unlock(environment, 'ada')).toEqual({ code: 1, stdout, stderr: '' });
  });

  describeWithRedis('with Redis', () => {
    let redis: RedisServer;
    let relays: TestRelay[] = [];
    beforeAll(async () => {
      redis = await startRedis();
      const environment = { REDIS_URL: redis.url, LOGIN_MAX_FAILURES: '2' };
      relays = await Promise.all([1, 2].map(() => startRelay(SERVICE, environment)));
    });
    afterAll(async () => {
      await Promise.all(relays.map((relay) => relay.close()));
      stopRedis();
    });

    async function statusOf({ port }: TestRelay, { name, password }: typeof USER): Promise<number> {
      const headers = { 'Content-Type': 'application/json' };
      const body = JSON.stringify({ username: name, password });
      return (await call(port, '/auth/login', { method: 'POST', headers, body })).status;
    }
    /** Fails twice; then the right password does not help any more, at any instance. */
    async function lock(user: typeof USER): Promise<void> {
      for (const relay of relays)
        expect(await statusOf(relay, { ...user, password: 'wrong' as never })).toBe(401);
      for (const relay of relays) expect(await statusOf(relay, user)).toBe(429);
    }

    test('lets one locked user sign in again at every instance, and no other', async () => {
      await lock(USER);
      await lock(OTHER_USER);
      const environment = { REDIS_URL: redis.url };
      const done = { code: 0, stdout: 'The failed sign-ins of ada are forgotten.\n', stderr: '' };
      expect(await unlock(environment, 'ada')).toEqual(done);
      for (const relay of relays) expect(await statusOf(relay, USER)).toBe(200);
      for (const relay of relays) expect(await statusOf(relay, OTHER_USER)).toBe(429);
      const nothing = { code: 1, stdout: 'No failed sign-ins of ada are counted.\n', stderr: '' };
      expect(await unlock(environment, 'ada')).toEqual(nothing);
      // The limit goes on.
      await lock(USER);
    });
  });
});
