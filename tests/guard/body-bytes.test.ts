import { afterEach, expect, jest, test } from '@jest/globals';
import { bodyBytes } from '../../src/pace/body-bytes.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';

afterEach(() => {
  jest.restoreAllMocks();
});

test('10,000 users are remembered: with one more, the one who has sent nothing for longest starts anew', () => {
  const countBody = bodyBytes(1);
  const now = performance.now();
  jest.spyOn(performance, 'now').mockReturnValue(now);
  const send = (user: string, bytes: number) => {
    const { count, release } = countBody({ user });
    count(bytes);
    release();
  };
  send('ada', 2 ** 20);
  for (let n = 1; n < 10_000; n += 1) send(`user ${n}`, 1);
  expect(codeThrownBy(() => send('ada', 1))).toBe('too_many_attempts');
  send('one more', 1);
  send('ada', 2 ** 20);
});
