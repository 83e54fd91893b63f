import { afterEach, expect, test } from '@jest/globals';
import { readArguments } from '../../src/check/check-arguments.ts';
import { checkEnvironment, printCheck } from '../support/check.ts';
import { stopProcesses } from '../support/process.ts';
import { CANARY } from '../support/relay.ts';

afterEach(() => stopProcesses());

const SIGN_IN = ['--through', 'http://127.0.0.1:9', '--user', 'ada'];

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
])('the command ends with 64 and an explanation, and repeats no argument: %#', async (args) => {
  const { code, text, progress } = await printCheck(args, checkEnvironment('http://127.0.0.1:9'));
  expect([code, text]).toEqual([64, '']);
  expect(progress).toMatch(/./);
});

test('what is asked for is read, and a bot that is named twice is asked once', () => {
  const args = ['--bot', 'a/b', '--bot', 'a/b', '--text', 'Hi', '--json', '--no-messages', ...SIGN_IN];
  expect(readArguments(args)).toEqual({
    json: true,
    messages: false,
    text: 'Hi',
    bots: ['a/b'],
    through: new URL('http://127.0.0.1:9'),
    user: 'ada',
    passwordFile: undefined,
  });
});
