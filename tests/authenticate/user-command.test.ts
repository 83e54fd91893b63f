import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable, Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import * as passwordHash from '../../src/authenticate/password/password-hash.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';

jest.unstable_mockModule('../../src/authenticate/password/password-hash.ts', () => ({
  ...passwordHash,
  hashPassword: async (password: string) => cheapHash(password),
}));
const { userCommand } = await import('../../src/commands/user.ts');

const fail = (error: Error) => {
  throw error;
};
const { listUsers, usersFromFile } = await import('../../src/authenticate/password/users.ts');

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-user-'));
  path = join(folder, 'users.json');
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Collects the output of a command. */
function output() {
  const printed: string[] = [];
  const stream = new Writable({
    write(text, _encoding, done) {
      printed.push(String(text));
      stream.emit('printed');
      done();
    },
  });
  return { stream, text: () => printed.join('') };
}

/** Runs the command with `input` piped into it. */
async function run(args: string[], input: string | Buffer = '') {
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
  stream.on('printed', () => {
    if (text().endsWith(': '))
      setImmediate(() => [...(answers.shift() ?? '')].forEach((key) => void input.write(key)));
  });
  const code = await userCommand(['add', 'ada'], path, { input, output: stream });
  return { code, text: text(), raw, paused: input.isPaused() };
}

const signsIn = async (password: string) =>
  (await (await usersFromFile(path, fail)).verify('ada', password)) !== undefined;

describe('bot-relay user add, piped', () => {
  test.each([
    ['as it is', 'long enough', 'long enough'],
    ['without the line end', 'long enough\n', 'long enough'],
    ['without the Windows line end', 'long enough\r\n', 'long enough'],
    ['with only the last line end dropped', 'long enough \n\n', 'long enough \n'],
  ])('takes the password %s', async (_how, input, password) => {
    const { code, text } = await run(['add', 'ada'], input);
    expect([code, text]).toEqual([0, `ada can sign in now (${path}).\n`]);
    expect(await signsIn(password)).toBe(true);
  });

  test('refuses a password of fewer than 8 characters', async () => {
    expect(await run(['add', 'ada'], '1234567\n')).toEqual({
      code: 1,
      text: 'A password has at least 8 characters.\n',
    });
    expect(() => listUsers(path)).toThrow();
  });

  test('explains why the name or the file cannot be used', async () => {
    expect(await run(['add', 'a b'], 'long enough')).toMatchObject({
      code: 1,
      text: expect.stringMatching(/letters/),
    });
    writeFileSync(path, '{');
    expect(await run(['add', 'ada'], 'long enough')).toMatchObject({
      code: 1,
      text: expect.stringMatching(/not JSON/),
    });
  });
});

describe('bot-relay user add, at a terminal', () => {
  test('asks twice, does not show the password, and restores the terminal', async () => {
    const { code, text, raw, paused } = await typeAnswers('typed-word\r', 'typed-word\n');
    expect(code).toBe(0);
    expect(text).toBe(`Password: \nOnce more: \nada can sign in now (${path}).\n`);
    expect([raw, paused]).toEqual([[true, false, true, false], true]);
    expect(await signsIn('typed-word')).toBe(true);
  });

  test('handles backspace', async () => {
    expect((await typeAnswers('typee\u007fd-wör\bö\u007f\u007förd\r', 'typed-wörd\r')).code).toBe(0);
    expect(await signsIn('typed-wörd')).toBe(true);
  });

  test('refuses two passwords that differ', async () => {
    const { code, text } = await typeAnswers('typed-word\r', 'typed-ward\r');
    expect([code, text]).toEqual([1, 'Password: \nOnce more: \nThe two passwords differ.\n']);
    expect(() => listUsers(path)).toThrow();
  });

  test.each(['\u0003', '\u0004'])('is cancelled by %j, and restores the terminal', async (key) => {
    const { code, text, raw } = await typeAnswers(`typed${key}`);
    expect([code, text, raw]).toEqual([1, 'Password: \nCancelled.\n', [true, false]]);
  });
});

describe('bot-relay user', () => {
  test('lists the names and removes one', async () => {
    await run(['add', 'ada'], 'long enough');
    await run(['add', 'bob'], 'long enough');
    expect(await run(['list'])).toEqual({ code: 0, text: 'ada\nbob\n' });
    expect(await run(['remove', 'ada'])).toMatchObject({
      code: 0,
      text: expect.stringMatching(/^ada can no longer/),
    });
    expect(await run(['remove', 'ada'])).toEqual({ code: 1, text: 'No user ada.\n' });
    expect(await run(['list'])).toEqual({ code: 0, text: 'bob\n' });
  });

  test('says that there is no file yet', async () => {
    expect(await run(['list'])).toEqual({ code: 1, text: `${path} cannot be used: it does not exist\n` });
  });

  test.each([[[]], [['add']], [['remove']], [['list', 'ada']], [['add', 'ada', 'bob']], [['change', 'ada']]])(
    'prints its usage for the arguments %j',
    async (args) => {
      expect(await run(args)).toMatchObject({
        code: 64,
        text: expect.stringMatching(/^Usage: bot-relay user add/),
      });
      expect(() => listUsers(path)).toThrow();
    },
  );
});
