import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { oncePerFrame } from '../../src/client/channel/channel-state.ts';
import { suspension } from '../../src/client/channel/channel-stop.ts';
import { followHistory } from '../../src/client/channel/follow-history.ts';
import { sessionQuestions } from '../../src/client/session/session-calls.ts';
import type { BotEvent } from '../../src/client/transport/bot-event.ts';
import { joining } from '../../src/client/transport/joining.ts';
import { resuming } from '../../src/client/transport/reconnecting.ts';
import { RelayError } from '../../src/client/transport/relay-error.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);
const CUT = new RelayError('Cut.', { code: 'connection_lost', status: 0 });
const busy = (retryAfter: number, retryable?: 'same message') =>
  new RelayError('Busy.', { code: 'busy', status: 503, retryable, retryAfter });

/** All pauses in a row, up to 100. */
function pausesOf(position: { pauseAfter(error: RelayError): number | undefined }, error = CUT): number[] {
  const pauses: number[] = [];
  for (let next = position.pauseAfter(error); next !== undefined && pauses.length < 100; ) {
    pauses.push(next);
    next = position.pauseAfter(error);
  }
  return pauses;
}

/** Each pause is longer than its base by up to a half, and the pages differ: all of them are cut at once by a restart. */
function expectSpread(pages: readonly (readonly number[])[], bases: readonly number[]): void {
  for (const [at, base] of bases.entries()) {
    const those = pages.map((pauses) => pauses[at] as number);
    expect(Math.min(...those)).toBeGreaterThanOrEqual(base);
    expect(Math.max(...those)).toBeLessThan(base * 1.5);
    expect(new Set(those).size).toBeGreaterThan(20);
  }
}
const PAGES = Array.from({ length: 40 });

describe('a stream is resumed', () => {
  function resumed(isLive: boolean) {
    const position = resuming(isLive);
    position.onId('7');
    return position;
  }

  test('five times without a new id, after pauses that double', () => {
    const pages = PAGES.map(() => pausesOf(resumed(true)));
    expect(new Set(pages.map(({ length }) => length))).toEqual(new Set([5]));
    expectSpread(pages, [1000, 2000, 4000, 8000, 16_000]);
  });

  test.each([true, false])('after at most a minute, whatever the other side says (live: %s)', (isLive) => {
    const anyTime = fc.double({ min: 0, max: 1e12, noNaN: true });
    fc.assert(
      fc.property(anyTime, anyTime, (retryMs, retryAfter) => {
        const position = resumed(isLive);
        position.onRetry(retryMs);
        const pause = Number(position.pauseAfter(busy(retryAfter)));
        expect(pause).toBeGreaterThanOrEqual(Math.min(60_000, Math.max(retryMs, retryAfter * 1000)));
        expect(pause).toBeLessThanOrEqual(60_000);
      }),
    );
    expect(resumed(isLive).pauseAfter(busy(7))).toBe(7_000);
  });

  test.each([
    ['as often as a new one if it is live and has lasted for two minutes', true, 5],
    ['no more than that if it is a message, however long it has lasted', false, 0],
  ])('%s', (_, isLive, more) => {
    const position = resumed(isLive);
    expect(pausesOf(position)).toHaveLength(5);
    jest.advanceTimersByTime(119_000);
    expect(position.pauseAfter(CUT)).toBeUndefined();
    jest.advanceTimersByTime(121_000);
    expect(pausesOf(position)).toHaveLength(more);
  });
});

describe('a stream is joined', () => {
  const event = { known: false, eventType: 'word', runId: undefined, id: undefined, raw: undefined } as const;
  /** A stream of which one event was read. */
  function begun() {
    const position = joining();
    position.begin(false);
    position.take(event, '1');
    return position;
  }

  test('15 times in a row, within 45 s, and three times if it was never answered', () => {
    const pages = PAGES.map(() => pausesOf(begun()));
    for (const pauses of pages) {
      expect(pauses).toHaveLength(15);
      expect(pauses.reduce((sum, pause) => sum + pause)).toBeLessThan(45_000);
    }
    expectSpread(pages, [250, 500, 1000, 2000, 2000]);
    expect(pausesOf(joining())).toHaveLength(3);
  });

  test('after Retry-After, up to a minute in all', () => {
    expect(pausesOf(begun(), busy(25, 'same message'))).toEqual([25_000, 25_000]);
    expect(pausesOf(begun(), busy(61, 'same message'))).toEqual([]);
  });

  test('as often again after a new event, up to 50 times in all', () => {
    const position = begun();
    let joins = 0;
    for (; position.pauseAfter(CUT) !== undefined; joins++) position.take(event, 'again');
    expect(joins).toBe(50);
  });
});

describe('who is signed in', () => {
  /** Questions that fail with this status, 0 while nothing answers; and when they were asked, in ms. */
  function asking(status?: number) {
    const times: number[] = [];
    const session = async () => {
      times.push(Date.now());
      if (status !== undefined) throw new RelayError('It fails.', { code: 'x', status });
      return undefined;
    };
    return { ...sessionQuestions({ session }, () => {}), times };
  }
  /** A session that ends in so many ms. */
  const ending = (ms: number) => ({
    user: { id: 'ada', name: 'Ada' },
    idleExpiresAt: new Date(Date.now() + ms).toISOString(),
    absoluteExpiresAt: '',
  });

  test.each([500, 0])('is asked at the end of a session until the relay can say so: %d', async (status) => {
    const { begin, awaitEnd, times, end } = asking(status);
    begin();
    awaitEnd(ending(60_000));
    await pass(600_000);
    const before = times.length;
    await pass(600_000);
    expect(times.length - before).toBeGreaterThan(10);
    expect(times.length - before).toBeLessThan(70);
    awaitEnd(null);
    await pass(600_000);
    const after = times.length;
    await pass(600_000);
    expect(times).toHaveLength(after);
    end();
  });

  test.each([0, 429, 502, 503, 504])('is asked again after %d, with longer pauses', async (status) => {
    const { begin, times } = asking(status);
    begin();
    await pass(600_000);
    const pauses = times.slice(1).map((time, at) => time - Number(times[at]));
    expect(pauses.length).toBeGreaterThan(5);
    expect(pauses).toEqual([...pauses].sort((one, other) => one - other));
    expect(Number(pauses.at(-1)) / Number(pauses[0])).toBeGreaterThan(10);
  });

  test.each<[string, number | undefined, (questions: ReturnType<typeof asking>) => Promise<void> | void]>([
    ['after an error that is no temporary one, while nobody is known', 500, () => {}],
    ['if nobody is learnt to be signed in before it is asked', undefined, ({ awaitEnd }) => awaitEnd(null)],
    [
      'if the end of the session cannot be read',
      undefined,
      async ({ awaitEnd }) => {
        await pass(10);
        awaitEnd({ ...ending(0), idleExpiresAt: '' });
      },
    ],
    [
      'and not after the end',
      0,
      async ({ awaitEnd, end }) => {
        awaitEnd(ending(1_000));
        await pass(10);
        end();
      },
    ],
  ])('is asked once %s', async (_, status, act) => {
    const questions = asking(status);
    questions.begin();
    await act(questions);
    await pass(600_000);
    expect(questions.times).toHaveLength(1);
  });
});

describe('a stop', () => {
  /** A conversation whose stop is never answered. */
  const silent = {
    stop: ({ signal }: { signal?: AbortSignal | undefined } = {}) =>
      new Promise<boolean>((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason))),
  };
  const started = (of: Parameters<ReturnType<typeof suspension>['stop']>[0]) => {
    const errors: unknown[] = [];
    const its = suspension((error) => errors.push(error));
    return { ...its, errors, stopped: its.stop(of) };
  };

  test('that is never answered is an error after 10 seconds', async () => {
    const { stopped, errors, ended } = started(silent);
    await pass(9_000);
    await stopped;
    expect(errors).toEqual([]);
    await pass(1_000);
    expect(errors).toEqual([expect.any(RelayError)]);
    expect(errors).toMatchObject([{ code: 'unreachable', status: 0 }]);
    expect(ended()).toBeUndefined();
  });

  test('that is left is no error', async () => {
    const { leave, errors } = started(silent);
    leave();
    await pass(11_000);
    expect(errors).toEqual([]);
  });

  test('that fails with an error of the page tells it', async () => {
    const thrown = new TypeError('a mistake of the page');
    const { stopped, errors } = started({ stop: () => Promise.reject(thrown) });
    await stopped;
    expect(errors).toEqual([thrown]);
  });
});

const OFTEN = Array.from({ length: 200 }, () => 100);

test.each<[string, readonly number[], (at: number) => string | undefined, number]>([
  ['0.5 s after the last event that is kept', OFTEN.slice(0, 10), () => 'id', 1_500],
  ['0.5 s after the first event of a run that goes on', OFTEN, () => undefined, 600],
  ['0.5 s after that, behind what is kept', OFTEN, (at) => (at < 10 ? 'id' : undefined), 1_600],
  ['after 5 s though events that are kept go on', OFTEN, () => 'id', 5_000],
  ['after 5 s without an event', [], () => 'id', 5_000],
])('a history is complete %s', async (_, waits, id, ms) => {
  async function* history(): AsyncGenerator<BotEvent, void, void> {
    for (const [at, wait] of waits.entries()) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      yield { known: false, eventType: 'word', id: id(at), runId: 'A', raw: undefined };
    }
    await new Promise(() => {});
  }
  const onAnswer = () => ({ onEvent() {}, onState() {}, onVerdict() {}, onError() {} });
  const view = { onQuestion() {}, onAnswer, onError() {} };
  const began = Date.now();
  let after: number | undefined;
  followHistory({ metadata: async () => ({}), history }, view).settled.then(() => {
    after = Date.now() - began;
  });
  for (let passed = 0; passed < 8_000 && after === undefined; passed += 50) await pass(50);
  expect(after).toBe(ms);
});

const frames = globalThis as {
  requestAnimationFrame?: (act: () => void) => number;
  cancelAnimationFrame?: (frame: number) => void;
};
afterEach(() => {
  delete frames.requestAnimationFrame;
  delete frames.cancelAnimationFrame;
});

/** Replaces the frames of the browser; the returned function draws one. */
function framesByHand() {
  const waiting = new Map<number, () => void>();
  let last = 0;
  frames.requestAnimationFrame = (act) => {
    waiting.set(++last, act);
    return last;
  };
  frames.cancelAnimationFrame = (frame) => waiting.delete(frame);
  return () => {
    const due = [...waiting.values()];
    waiting.clear();
    for (const act of due) act();
  };
}

test('oncePerFrame calls once in the next frame', () => {
  const frame = framesByHand();
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  ask();
  expect(calls).toBe(0);
  frame();
  expect(calls).toBe(1);
  frame();
  expect(calls).toBe(1);
  ask();
  frame();
  expect(calls).toBe(2);
});

test('oncePerFrame calls after a second if no frame comes, and not again in a late frame', () => {
  const frame = framesByHand();
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  frame();
  jest.advanceTimersByTime(300);
  ask();
  // The wait for the first frame is over.
  jest.advanceTimersByTime(999);
  expect(calls).toBe(1);
  jest.advanceTimersByTime(1);
  expect(calls).toBe(2);
  frame();
  expect(calls).toBe(2);
});

test('oncePerFrame calls in the next task if there are no frames at all', () => {
  let calls = 0;
  const ask = oncePerFrame(() => calls++);
  ask();
  ask();
  expect(calls).toBe(0);
  jest.advanceTimersByTime(1);
  expect(calls).toBe(1);
  jest.runAllTimers();
  expect(calls).toBe(1);
});
