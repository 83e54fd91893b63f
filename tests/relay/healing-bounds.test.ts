import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { type HealerOptions, healer, type Pause, pauseMs } from '../../src/relay/message/healing.ts';
import { healingGate } from '../../src/relay/message/healing-gate.ts';
import { attemptResumption } from '../../src/relay/message/resumption-attempt.ts';
import type { UpstreamAnswer } from '../../src/relay/upstream/answer-arrival.ts';
import { secret } from '../../src/secret.ts';

const BOT = 'acme/helper';

afterEach(() => {
  jest.useRealTimers();
});

/** What healing needs of a service that answers each request with `status` and `headers`. */
function options({ status = 503, headers = {} }: { status?: number; headers?: Record<string, string> } = {}) {
  const closed: number[] = [];
  const answer = { status, headers, close: () => void closed.push(status) } as Partial<UpstreamAnswer>;
  const gate = healingGate();
  const healOptions: HealerOptions = {
    ...{ bot: BOT, gate, responseTimeoutMs: 60_000, random: () => 0, leastPauseMs: 0 },
    request: { path: '/m', headers: {}, body: Buffer.alloc(0) },
    turn: async () => ({
      ...{ renewSlot: async () => {}, sent() {}, takeExtraSlot: async () => {}, refused: async () => {} },
    }),
    keys: () => ({
      next: () => secret('key'),
      accepted() {},
      refused: (problem) => problem,
    }),
    send: () => async () => answer as UpstreamAnswer,
    observe() {},
  };
  return { closed, gate, healOptions };
}

describe('a pause', () => {
  const pause = (given: Partial<Pause>) =>
    pauseMs({ attempts: 0, retryMs: undefined, random: () => 0, ...given });

  test('doubles with each attempt up to four seconds, and is up to a half longer by chance', () => {
    expect([0, 1, 2, 3, 4, 5, 9].map((attempts) => pause({ attempts }))).toEqual([
      250, 500, 1_000, 2_000, 4_000, 4_000, 4_000,
    ]);
    expect(pause({ attempts: 9, random: () => 1 })).toBe(6_000);
  });

  test("begins with the service's `retry:`, from a tenth of a second to ten seconds", () => {
    expect([0, 100, 3_000, 10_000, 10_001, 1e9].map((retryMs) => pause({ retryMs }))).toEqual([
      100, 100, 3_000, 10_000, 10_000, 10_000,
    ]);
    expect(pause({ retryMs: 6_000, attempts: 3 })).toBe(6_000);
  });
});

test.each([
  ['30', 30_000],
  ['3600', 60_000],
])('after a 429 with `Retry-After: %s` the next attempt waits %i ms', async (retryAfter, askedMs) => {
  const { healOptions, closed } = options({ status: 429, headers: { 'retry-after': retryAfter } });
  const { signal } = new AbortController();
  const attempted = await attemptResumption(healOptions, { lastEventId: '7', onSent() {}, signal });
  expect(attempted).toMatchObject({ outcome: 'rate_limited', askedMs });
  expect(closed).toEqual([429]);
});

test('a stream that waits at the gate is not resumed once another one has met a new run', async () => {
  const { healOptions, gate } = options();
  let turns = 0;
  const turn: HealerOptions['turn'] = (signal) => {
    turns++;
    return healOptions.turn(signal);
  };
  const { signal } = new AbortController();
  await gate.enter(BOT, signal);
  const waits = healer({ ...healOptions, turn }).resume(
    { lastEventId: '7', retryMs: 0, idBlock: undefined, tail: Buffer.alloc(0), runId: undefined },
    signal,
  );
  await new Promise((resolve) => setTimeout(resolve, 50));
  gate.forbid(BOT);
  expect(await waits).toBeUndefined();
  expect(turns).toBe(0);
});

test('a pass of the gate leaves no timer, neither sent with two keys nor after it was left', async () => {
  jest.useFakeTimers();
  const gate = healingGate();
  const enter = () => gate.enter(BOT, new AbortController().signal);
  const pass = await enter();
  pass.sent();
  pass.sent();
  expect(jest.getTimerCount()).toBe(1);
  pass.leave();
  const left = await enter();
  left.leave();
  left.sent();
  expect(jest.getTimerCount()).toBe(0);
});

describe('an attempt that was delayed', () => {
  /** A sender that waits for the slot of a delayed request, and then does not answer if `isSilent`. */
  const delayed =
    (answered: HealerOptions['send'], isSilent: boolean): HealerOptions['send'] =>
    (fingerprint) =>
    (request, sending) =>
      new Promise((resolve, reject) => {
        sending.signal.addEventListener('abort', () => reject(sending.signal.reason));
        void sending.onDelayed().then(() => {
          if (!isSilent) resolve(answered(fingerprint)(request, sending));
        });
      });

  test.each([
    ['may wait longer for its slot than for the answer', false, 'unavailable'],
    ['has its whole time for the answer after that', true, 'timeout'],
  ])('%s', async (_title, isSilent, outcome) => {
    const { healOptions } = options();
    const turn: HealerOptions['turn'] = async (signal) => ({
      ...(await healOptions.turn(signal)),
      renewSlot: () => new Promise((resolve) => setTimeout(resolve, 300)),
    });
    const send = delayed(healOptions.send, isSilent);
    const attempted = await attemptResumption(
      { ...healOptions, turn, send, responseTimeoutMs: 100 },
      { lastEventId: '7', onSent() {}, signal: new AbortController().signal },
    );
    expect(attempted).toMatchObject({ outcome });
  });
});
