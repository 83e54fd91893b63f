import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import * as passwordHash from '../../src/authenticate/password/password-hash.ts';
import { call } from '../harness/clients/call.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { inFrontOf } from '../harness/relay/process.ts';
import { OTHER_USER, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

jest.unstable_mockModule('../../src/authenticate/password/password-hash.ts', () => ({
  ...passwordHash,
  hashPassword: async (password: string) => cheapHash(password),
}));
const { userCommand } = await import('../../src/commands/user.ts');
const { listUsers, usersFromFile } = await import('../../src/authenticate/password/users.ts');

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bot-relay-user-'));
  path = join(folder, 'users.json');
});
afterEach(() => rmSync(folder, { recursive: true }));

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

async function signsIn(password: string): Promise<boolean> {
  const users = await usersFromFile(path, (error) => {
    throw error;
  });
  return (await users.verify('ada', password)) !== undefined;
}

describe('bot-relay user add, piped', () => {
  test.each([
    ['as it is', 'long enough', 'long enough'],
    ['without the line end', 'long enough\n', 'long enough'],
    ['without the Windows line end', 'long enough\r\n', 'long enough'],
    ['with only the last line end dropped', 'long enough \n\n', 'long enough \n'],
  ])('takes the password %s', async (_how, input, password) => {
    expect(await run(['add', 'ada'], input)).toEqual({ code: 0, text: `ada can sign in now (${path}).\n` });
    expect(await signsIn(password)).toBe(true);
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
    expect(await signsIn('typed-word')).toBe(true);
  });

  test('handles backspace', async () => {
    expect((await typeAnswers('typee\u007fd-wör\bö\u007f\u007förd\r', 'typed-wörd\r')).code).toBe(0);
    expect(await signsIn('typed-wörd')).toBe(true);
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

  test.each([[[]], [['add']], [['remove']], [['list', 'ada']], [['add', 'ada', 'bob']], [['change', 'ada']]])(
    'prints its usage for the arguments %j',
    async (args) => {
      const usage = { code: 64, text: expect.stringMatching(/^Usage: bot-relay user add/) };
      expect(await run(args)).toEqual(usage);
      expect(() => listUsers(path)).toThrow();
    },
  );
});

const SERVICE = 'http://127.0.0.1:9';
const unlock = (environment: Record<string, string>, ...args: string[]) =>
  runCommand({ args: ['user', 'unlock', ...args], environment: { ...inFrontOf(SERVICE), ...environment } });

describeWithRedis('bot-relay user unlock, with Redis', () => {
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

describe('bot-relay user unlock', () => {
  afterAll(() => stopCommands());

  test.each([
    [
      {},
      'Without REDIS_URL each relay counts failed sign-ins in its own memory: restart it to unlock ada.\n',
    ],
    [{ REDIS_URL: 'redis://127.0.0.1:9' }, 'Redis cannot be used; npx bot-relay check says why.\n'],
  ])('says why it can do nothing: %j', async (environment, stdout) => {
    expect(await unlock(environment, 'ada')).toEqual({ code: 1, stdout, stderr: '' });
  });

  test.each([[[]], [['ada', 'bob']]])('prints its usage for the names %j', async (names) => {
    const { code, stdout } = await unlock({}, ...names);
    expect([code, stdout]).toEqual([64, expect.stringMatching(/^Usage: bot-relay user add/)]);
  });
});
