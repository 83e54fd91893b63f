import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { deadlines } from '../../src/relay/message/deadlines.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { openMessages } from '../../src/relay/message/open-messages.ts';
import {
  type HealableMessage,
  type MessageHealingOptions,
  messageHealing,
} from '../../src/routes/message-healing.ts';
import { lastEventIdOf } from '../../src/routes/read-run.ts';

test('an empty Last-Event-ID is none', () => {
  expect(['', '7', undefined].map((id) => lastEventIdOf({ 'last-event-id': id }))).toEqual([
    undefined,
    '7',
    undefined,
  ]);
});

describe('the timers of a message', () => {
  beforeEach(() => {
    jest.useFakeTimers();
  });
  afterEach(() => {
    jest.useRealTimers();
  });
  const start = () => {
    const stop = new AbortController();
    const timers = deadlines(stop, { responseTimeoutMs: 100, maxExecutionMs: 1_000 });
    return { timers, reason: () => stop.signal.reason?.code as string | undefined };
  };

  test('start again each time it is sent', () => {
    const { timers, reason } = start();
    timers.start();
    jest.advanceTimersByTime(99);
    timers.start(500);
    expect(jest.getTimerCount()).toBe(1);
    jest.advanceTimersByTime(99);
    expect(reason()).toBeUndefined();
    jest.advanceTimersByTime(1);
    expect(reason()).toBe('upstream_timeout');
    timers.clear();
    expect(jest.getTimerCount()).toBe(0);
  });

  test('leave what is left of the execution when it is answered', () => {
    const { timers, reason } = start();
    timers.start(500);
    timers.answered();
    jest.advanceTimersByTime(499);
    expect(reason()).toBeUndefined();
    jest.advanceTimersByTime(1);
    expect(reason()).toBe('deadline_exceeded');
  });

  test('end with it, also after the time in which it had to be answered', () => {
    const { timers, reason } = start();
    timers.start(500);
    timers.answered();
    jest.advanceTimersByTime(200);
    expect(jest.getTimerCount()).toBe(1);
    timers.clear();
    expect(jest.getTimerCount()).toBe(0);
    expect(reason()).toBeUndefined();
  });
});

test('kept messages take at most half of the bytes that may be held', () => {
  const held = heldBytes(1_000);
  const options: Partial<MessageHealingOptions> = { resume: true, held };
  const keep = messageHealing(options as MessageHealingOptions);
  const message: Partial<HealableMessage> = {
    bot: 'acme/helper',
    request: { path: '/m', headers: {}, body: Buffer.alloc(300) },
    locals: {} as HealableMessage['locals'],
  };
  const keepOne = () => keep(message as HealableMessage);
  const first = keepOne();
  expect(typeof first?.healer).toBe('function');
  expect(keepOne()?.healer).toBe('no_room');
  expect(held.bytes()).toBe(300);
  first?.release();
  expect(held.bytes()).toBe(0);
  // What streams hold counts, too.
  expect(held.take(800)).toBe(true);
  expect(keepOne()?.healer).toBe('no_room');
  held.release(800);
  expect(typeof keepOne()?.healer).toBe('function');
});

const DRAINING = new Problem('draining', 'Over.');

test('live streams are not counted as messages, and each of both is removed once', () => {
  const open = openMessages();
  const removes = [
    open.add(new AbortController(), 'a'),
    open.add(new AbortController(), 'a', 'live'),
    open.add(new AbortController(), 'b'),
  ];
  expect(open.count()).toBe(2);
  for (const remove of [...removes, ...removes]) remove();
  expect(open.count()).toBe(0);
});

test('endKinds ends what is of these kinds and nothing else, and also what is added later', () => {
  const open = openMessages();
  const [message, live, late] = [new AbortController(), new AbortController(), new AbortController()];
  open.add(message, 'a');
  open.add(live, 'a', 'live');
  open.endKinds(['live'], DRAINING);
  open.add(late, 'a', 'live');
  expect([live.signal.reason, late.signal.reason, message.signal.aborted]).toEqual([
    DRAINING,
    DRAINING,
    false,
  ]);
  open.endSession('b', DRAINING);
  expect(message.signal.aborted).toBe(false);
  open.endSession('a', DRAINING);
  expect(message.signal.aborted).toBe(true);
});
