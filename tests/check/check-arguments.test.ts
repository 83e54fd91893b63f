import { PassThrough } from 'node:stream';
import { afterEach, expect, test } from '@jest/globals';
import { type CheckOptions, readArguments } from '../../src/check/check-arguments.ts';
import { CheckReport } from '../../src/check/report.ts';
import { visitorsOf } from '../../src/check/visitors.ts';
import { checkEnvironment, printCheck } from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

afterEach(() => stopProcesses());

const SIGN_IN = ['--through', 'http://127.0.0.1:9', '--user', 'ada'];
const OTHER_SIGN_IN = [...SIGN_IN, '--other-user', 'bob', '--other-password-file', 'file'];

test.each([
  [[CANARY.password]],
  [['--password', CANARY.password]],
  [['--text']],
  [['--through', 'chat.example.com']],
  [['--through', 'https://chat.example.com/path']],
  [['--through', 'https://ada:word@chat.example.com']],
  [['--user', 'ada']],
  [['--through', 'https://chat.example.com', '--password-file', 'p']],
  [['--bot', 'acme/*']],
  [['--bot', 'helper']],
  [SIGN_IN],
  [[...SIGN_IN, '--password-file', '/no/such/file']],
  [['--through', 'https://chat.example.com', '--other-user', 'bob']],
  [[...SIGN_IN, '--other-user', 'ada']],
  [[...SIGN_IN, '--other-password-file', 'file']],
])('wrong arguments exit with 64 and an explanation, and no argument is printed: %#', async (args) => {
  const { code, text, progress } = await printCheck(args, checkEnvironment('http://127.0.0.1:9'));
  expect([code, text]).toEqual([64, '']);
  expect(progress).toMatch(/./);
});

test('the arguments are read, and a bot that is named twice is used once', () => {
  const args = ['--bot', 'a/b', '--bot', 'a/b', '--text', 'Hi', '--json', '--no-messages', ...OTHER_SIGN_IN];
  expect(readArguments(args)).toEqual({
    json: true,
    messages: false,
    text: 'Hi',
    bots: ['a/b'],
    through: new URL('http://127.0.0.1:9'),
    users: [
      { name: 'ada', variable: 'CHECK_PASSWORD', option: '--password-file', file: undefined },
      { name: 'bob', variable: 'CHECK_OTHER_PASSWORD', option: '--other-password-file', file: 'file' },
    ],
  });
});

test('the password is asked for at the terminal, which does not show it, and is masked', async () => {
  const output = new PassThrough();
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => {} });
  const report = new CheckReport();
  const { users } = readArguments(SIGN_IN) as CheckOptions;
  const asked = visitorsOf('password', users, { environment: {}, terminal: { input, output }, report });
  input.write(`${CANARY.password}\r`);
  const { visitor } = await asked;
  expect(visitor).not.toBe('guest');
  expect(visitor !== 'guest' && visitor?.password.open()).toBe(CANARY.password);
  expect(String(output.read())).toBe('Password of ada: \n');
  expect(report.quote(CANARY.password)).toBe('[secret]');
});

test('a very short password is not masked, since other words may contain it', async () => {
  const report = new CheckReport();
  const terminal = { input: new PassThrough(), output: new PassThrough() };
  const { users } = readArguments(SIGN_IN) as CheckOptions;
  await visitorsOf('password', users, { environment: { CHECK_PASSWORD: 'demo' }, terminal, report });
  expect(report.quote('demo')).toBe('demo');
});
