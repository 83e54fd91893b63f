import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { suspension } from '../../src/client/channel/channel-stop.ts';
import { RelayError } from '../../src/client/transport/relay-error.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** A conversation whose stop is never answered. */
const silent = {
  stop: ({ signal }: { signal?: AbortSignal | undefined } = {}) =>
    new Promise<boolean>((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason))),
};

test('a stop that is never answered is an error after 10 seconds', async () => {
  const errors: unknown[] = [];
  const { stop, ended } = suspension((error) => errors.push(error));
  const stopped = stop(silent);
  await jest.advanceTimersByTimeAsync(9_000);
  await stopped;
  expect(errors).toEqual([]);
  await jest.advanceTimersByTimeAsync(1_000);
  expect(errors).toEqual([expect.any(RelayError)]);
  expect(errors).toMatchObject([{ code: 'unreachable', status: 0 }]);
  expect(ended()).toBeUndefined();
});

test('a stop that is left is no error', async () => {
  const errors: unknown[] = [];
  const { stop, leave } = suspension((error) => errors.push(error));
  void stop(silent);
  leave();
  await jest.advanceTimersByTimeAsync(11_000);
  expect(errors).toEqual([]);
});

test('an error that is none of the relay is told, too', async () => {
  const thrown = new TypeError('a mistake of the page');
  const errors: unknown[] = [];
  const { stop } = suspension((error) => errors.push(error));
  await stop({ stop: () => Promise.reject(thrown) });
  expect(errors).toEqual([thrown]);
});
