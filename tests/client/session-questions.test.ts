import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { sessionQuestions } from '../../src/client/session/session-calls.ts';
import { RelayError } from '../../src/client/transport/relay-error.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** Questions that fail with this status, 0 while nothing answers; how many were asked, and when, in ms. */
function asking(status?: number) {
  let asked = 0;
  const times: number[] = [];
  const session = async () => {
    asked += 1;
    times.push(Date.now());
    if (status !== undefined) throw new RelayError('It fails.', { code: 'x', status });
    return undefined;
  };
  return { ...sessionQuestions({ session }, () => {}), asked: () => asked, times };
}
/** A session that ends in so many ms. */
const ending = (ms: number) => ({
  user: { id: 'ada', name: 'Ada' },
  idleExpiresAt: new Date(Date.now() + ms).toISOString(),
  absoluteExpiresAt: '',
});
const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);

test.each([500, 0])('the end of a session is asked for until the relay can say so: %d', async (status) => {
  const { begin, awaitEnd, asked, end } = asking(status);
  begin();
  awaitEnd(ending(60_000));
  await pass(600_000);
  const before = asked();
  await pass(600_000);
  expect(asked() - before).toBeGreaterThan(10);
  expect(asked() - before).toBeLessThan(70);
  awaitEnd(null);
  await pass(600_000);
  const after = asked();
  await pass(600_000);
  expect(asked()).toBe(after);
  end();
});

test.each([0, 429, 502, 503, 504])(
  'a question that ends with %d is asked again, after longer pauses',
  async (status) => {
    const { begin, times } = asking(status);
    begin();
    await pass(600_000);
    const pauses = times.slice(1).map((time, at) => time - Number(times[at]));
    expect(pauses.length).toBeGreaterThan(5);
    expect(pauses).toEqual([...pauses].sort((one, other) => one - other));
    expect(Number(pauses.at(-1)) / Number(pauses[0])).toBeGreaterThan(10);
  },
);

test('nothing more is asked after an error that is no temporary one, while nobody is known to be signed in', async () => {
  const { begin, asked } = asking(500);
  begin();
  await pass(600_000);
  expect(asked()).toBe(1);
});

test('a question that is about to be asked is asked, whatever is learnt meanwhile', async () => {
  const { begin, awaitEnd, asked } = asking();
  begin();
  awaitEnd(null);
  await pass(10);
  expect(asked()).toBe(1);
});

test('a session without a time that can be read is not asked for all the time', async () => {
  const { begin, awaitEnd, asked } = asking();
  begin();
  await pass(10);
  awaitEnd({ ...ending(0), idleExpiresAt: '' });
  await pass(60_000);
  expect(asked()).toBe(1);
});

test('nothing is asked after the end', async () => {
  const { begin, awaitEnd, asked, end } = asking(0);
  begin();
  awaitEnd(ending(1_000));
  await pass(10);
  end();
  await pass(600_000);
  expect(asked()).toBe(1);
});
