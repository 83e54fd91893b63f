import { beforeEach, describe, expect, test } from '@jest/globals';
import { type MessageStarts, messageStarts, nameOfMessage } from '../../src/relay/message/message-starts.ts';

const BODY = Buffer.from('{"text":"hello"}');

let now: number;
let starts: MessageStarts;
beforeEach(() => {
  now = 5000;
  starts = messageStarts({ maxExecutionMs: 1000, max: 3, now: () => now });
});

describe('the deadline of a message', () => {
  test('has as much left as it had when the message was sent, less the time since then', () => {
    starts.began('one');
    expect(starts.leftMs('one')).toBe(1000);
    now += 400;
    starts.began('two');
    now += 500;
    expect([starts.leftMs('one'), starts.leftMs('two')]).toEqual([100, 500]);
  });

  test('is over, and stays over for as long again', () => {
    starts.began('one');
    for (const passedMs of [1000, 1999]) {
      now = 5000 + passedMs;
      expect(starts.leftMs('one')).toBe(0);
    }
    now = 7000;
    expect(starts.leftMs('one')).toBe(1000);
  });

  test('is whole if the message is not known, or has ended well', () => {
    expect(starts.leftMs('one')).toBe(1000);
    starts.began('one');
    now += 400;
    starts.ended('one');
    expect(starts.leftMs('one')).toBe(1000);
  });

  test('begins again when the same message is sent again', () => {
    starts.began('one');
    now += 900;
    starts.began('one');
    expect(starts.leftMs('one')).toBe(1000);
  });
});

describe('the memory of messages', () => {
  test('has a bound: the one that was sent first is forgotten first', () => {
    for (const name of ['one', 'two', 'three', 'one', 'four']) {
      starts.began(name);
      now += 100;
    }
    expect(['one', 'two', 'three', 'four'].map(starts.leftMs)).toEqual([800, 1000, 700, 900]);
  });

  test('is of 10,000 messages unless another bound is set', () => {
    const many = messageStarts({ maxExecutionMs: 1000, now: () => now });
    for (let n = 0; n < 10_001; n++) many.began(`${n}`);
    now += 1;
    expect([many.leftMs('0'), many.leftMs('1')]).toEqual([1000, 999]);
  });

  test('runs on the monotonic clock of the process', async () => {
    const real = messageStarts({ maxExecutionMs: 60_000 });
    const before = performance.now();
    real.began('one');
    const left = real.leftMs('one');
    expect(left).toBeLessThanOrEqual(60_000);
    expect(left).toBeGreaterThanOrEqual(60_000 - (performance.now() - before));
  });
});

describe('the name of a message', () => {
  test('is the same for the same user, bot and body only', () => {
    const name = nameOfMessage('ann', 'acme/helper', BODY);
    expect(nameOfMessage('ann', 'acme/helper', Buffer.from(BODY))).toBe(name);
    const others = [
      nameOfMessage('ben', 'acme/helper', BODY),
      nameOfMessage('ann', 'acme/other', BODY),
      nameOfMessage('ann', 'acme/helper', Buffer.from('{"text":"hello" }')),
      nameOfMessage('ann","acme/helper', '', BODY),
    ];
    expect(new Set([name, ...others]).size).toBe(5);
  });

  test('shows nothing of them', () => {
    expect(nameOfMessage('ann', 'acme/helper', BODY)).toMatch(/^[\w-]{43}$/);
  });

  test('is missing for a body of more than 64 KiB', () => {
    expect(nameOfMessage('ann', 'acme/helper', Buffer.alloc(65_536))).toBeDefined();
    expect(nameOfMessage('ann', 'acme/helper', Buffer.alloc(65_537))).toBeUndefined();
  });
});
