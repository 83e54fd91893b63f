import { PassThrough, Writable } from 'node:stream';
import { expect, test } from '@jest/globals';
import { signInPassword } from '../../src/check/sign-in-password.ts';
import { CANARY, expectNoCanary } from '../harness/relay/relay.ts';

const ada = { user: 'ada', variable: 'CHECK_PASSWORD', option: '--password-file', file: undefined };

test('the password is asked for at the terminal, which does not show it', async () => {
  const printed: string[] = [];
  const output = new Writable({
    write(text, _encoding, done) {
      printed.push(String(text));
      done();
    },
  });
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => {} });
  const asked = signInPassword(ada, {}, { input, output });
  input.write(`${CANARY.password}\r`);
  const { password, hidden } = await asked;
  expect(password.open()).toBe(CANARY.password);
  expect(hidden).toEqual([password]);
  expect(printed.join('')).toBe('Password of ada: \n');
  expectNoCanary(printed.join(''));
});

test('a very short password is not masked, since other words may contain it', async () => {
  const terminal = { input: new PassThrough(), output: new PassThrough() };
  expect((await signInPassword(ada, { CHECK_PASSWORD: 'demo' }, terminal)).hidden).toEqual([]);
});
