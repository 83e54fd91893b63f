import { afterEach, describe, expect, test } from '@jest/globals';
import { mostInWindow } from '../support/paced.ts';
import { type Pair, plainAnswer, startPair, until } from '../support/pair.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { CANARY } from '../support/relay.ts';

const BOTH_KEYS = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
const STREAM = wholeStream('data: a\n\n');
const REFUSAL = plainAnswer('401 No', []);

let pair: Pair;
afterEach(() => pair.close());

/** An upstream that takes the keys of `valid` only, and when each request came, in ms. */
async function start(valid: Set<string>, environment: Record<string, string>) {
  const arrivals: number[] = [];
  pair = await startPair((socket, { all }) => {
    arrivals.push(performance.now());
    socket.write(valid.has(all('x-api-key')[0] ?? '') ? STREAM : REFUSAL);
  }, environment);
  return arrivals;
}

const send = async () => {
  const response = await pair.relay.send(pair.cookie);
  await response.text();
  return response.status;
};
const keysThatCame = () => pair.upstream.requests.map(({ all }) => all('x-api-key')[0]);

describe('a key that was refused', () => {
  test('costs one message a second request, and not every message', async () => {
    await start(new Set([CANARY.secondKey]), BOTH_KEYS);
    expect([await send(), await send(), await send()]).toEqual([200, 200, 200]);
    expect(keysThatCame()).toEqual([CANARY.key, ...Array(3).fill(CANARY.secondKey)]);
  });

  test('is tried again when the others are refused as well: nobody is locked out', async () => {
    const valid = new Set<string>();
    await start(valid, BOTH_KEYS);
    expect([await send(), await send()]).toEqual([502, 502]);
    valid.add(CANARY.key);
    expect(await send()).toBe(200);
    // It is the first again, with nothing in front of it.
    const before = pair.upstream.requests.length;
    expect(await send()).toBe(200);
    expect(keysThatCame().slice(before)).toEqual([CANARY.key]);
  });

  test('is told in the log once, and so is the one that works', async () => {
    await start(new Set([CANARY.secondKey]), BOTH_KEYS);
    await send();
    await send();
    const told = pair.relay.logs.filter(({ msg }) => String(msg).startsWith('upstream key '));
    const [first, second] = pair.relay.bots.keyRings.keys();
    expect(told).toMatchObject([
      {
        level: 'warn',
        msg: 'upstream key rejected',
        keyRing: 'acme/helper',
        keyFingerprint: first?.fingerprint,
      },
      {
        level: 'info',
        msg: 'upstream key accepted',
        keyRing: 'acme/helper',
        keyFingerprint: second?.fingerprint,
      },
    ]);
    expect(told).toHaveLength(2);
  });
});

describe('the request with a refused key', () => {
  const WINDOW = 400;
  const BUDGET = { ...BOTH_KEYS, RATE_LIMIT: '2', RATE_WINDOW_MS: String(WINDOW), RATE_MAX_WAIT_MS: '4000' };

  test('counts against the budget like every other: it reaches the service (L1)', async () => {
    const arrivals = await start(new Set([CANARY.secondKey]), BUDGET);
    // The first two find out; each of the others needs one request.
    expect(await Promise.all(Array.from({ length: 6 }, send))).toEqual(Array(6).fill(200));
    expect(keysThatCame().filter((key) => key === CANARY.secondKey)).toHaveLength(6);
    expect(arrivals.length).toBeGreaterThan(6);
    expect(mostInWindow(arrivals, WINDOW)).toBeLessThanOrEqual(2);
  });

  test('does not lose its message, however short messages may wait', async () => {
    await start(new Set([CANARY.secondKey]), { ...BUDGET, RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '0' });
    expect(await send()).toBe(200);
    expect(keysThatCame()).toEqual([CANARY.key, CANARY.secondKey]);
    const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
    expect(line.slotWaitMs).toBeGreaterThan(WINDOW / 2);
  });

  test('is followed by none when the client leaves while it waits', async () => {
    const arrivals = await start(new Set([CANARY.secondKey]), { ...BUDGET, RATE_LIMIT: '1' });
    const client = pair.ask();
    await until(() => arrivals.length === 1);
    client.socket.destroy();
    expect(await pair.relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({ status: 499 });
    // The next has the slot that was given back.
    expect(await send()).toBe(200);
    expect(keysThatCame()).toEqual([CANARY.key, CANARY.secondKey]);
  });
});

describe('a message that has met a refused key', () => {
  test('does not try it again when the next key is answered 429, and gives up in time', async () => {
    const answers = new Map<string, string | Buffer>([
      [CANARY.key, REFUSAL],
      [CANARY.secondKey, REFUSAL],
    ]);
    pair = await startPair((socket, { all }) => {
      socket.write(answers.get(all('x-api-key')[0] ?? '') ?? STREAM);
    }, BOTH_KEYS);
    // From now on there is no key that was not refused.
    expect(await send()).toBe(502);
    answers.set(CANARY.secondKey, plainAnswer('429 Busy', ['Retry-After: 1']));
    const before = pair.upstream.requests.length;
    expect(await send()).toBe(429);
    const [first, ...others] = keysThatCame().slice(before);
    expect(first).toBe(CANARY.key);
    expect(new Set(others)).toEqual(new Set([CANARY.secondKey]));
  }, 20_000);
});
