import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { codeOf, DONE, type PacedPair, startPaced } from '../support/paced.ts';
import { plainAnswer, until } from '../support/pair.ts';
import { OTHER_USER } from '../support/relay.ts';

const WINDOW = 300;

let pair: PacedPair;
afterEach(() => pair.close());

async function start(environment: Record<string, string>, answer?: Parameters<typeof startPaced>[1]) {
  pair = await startPaced({ RATE_WINDOW_MS: String(WINDOW), ...environment }, answer);
}

describe('a message that the bot service has no time for', () => {
  /** Answers the first `refusals` messages with 429. */
  const busyFor = (refusals: number, retryAfter: string) => {
    let seen = 0;
    return (socket: Socket) =>
      void socket.write(
        seen++ < refusals
          ? plainAnswer('429 Busy', ['Content-Type: application/json', `Retry-After: ${retryAfter}`], '{}')
          : DONE,
      );
  };

  test('is sent again when the service has said, with nothing to that bot before (L8)', async () => {
    await start({ RATE_MAX_WAIT_MS: '2000' }, busyFor(1, '2'));
    const refused = pair.send(0);
    await until(() => pair.arrivals.length === 1);
    await sleep(100);
    const later = pair.send(1);
    const answers = await Promise.all([refused, later]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect(pair.started().sort()).toEqual([0, 0, 1]);
    const [first, second] = pair.arrivals.map(({ at }) => at) as [number, number];
    expect(second - first).toBeGreaterThanOrEqual(1990);
    expect(await pair.relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({
      outcome: 'ok',
      upstreamStatus: 200,
    });
    expect(await pair.relay.logLine(({ slotWaitMs }) => Number(slotWaitMs) > 1900)).toMatchObject({
      status: 200,
    });
  });

  test('moves those that wait already (L8)', async () => {
    await start({ RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '10000' }, busyFor(1, '1'));
    const other = await pair.relay.signIn(OTHER_USER);
    const all = [pair.send(0), pair.send(1, { cookie: other })];
    await until(() => pair.arrivals.length === 1);
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual([200, 200]);
    expect(pair.started()).toEqual([0, 0, 1]);
    const [first, second, third] = pair.arrivals.map(({ at }) => at) as [number, number, number];
    expect(second - first).toBeGreaterThanOrEqual(990);
    expect(third - second).toBeGreaterThanOrEqual(WINDOW - 10);
  });

  test('is refused at once if that is longer than it may wait (L8)', async () => {
    await start({ RATE_MAX_WAIT_MS: '1500' }, busyFor(1, '2'));
    const before = performance.now();
    const refused = await pair.send(0);
    expect(performance.now() - before).toBeLessThan(1000);
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'upstream_rate_limited']);
    expect(refused.headers.get('retry-after')).toBe('2');
    const { slotWaitMs } = await pair.relay.logLine(({ outcome }) => outcome === 'upstream_rate_limited');
    expect(slotWaitMs).toBeLessThan(1000);
    // And neither may another of that bot.
    expect((await pair.send(1)).status).toBe(429);
    expect(pair.started()).toEqual([0]);
  });

  test('has waited already what it has waited before (L8)', async () => {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '1500', RATE_MAX_WAIT_MS: '2000' }, (socket, { body }) =>
      busyFor(body.includes('"n":1') ? 1 : 0, '1')(socket),
    );
    await pair.send(0);
    const refused = await pair.send(1);
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'upstream_rate_limited']);
    expect(pair.started()).toEqual([0, 1]);
  });

  test('and whose client leaves meanwhile is not sent again (S14)', async () => {
    await start({ RATE_MAX_WAIT_MS: '5000' }, busyFor(1, '1'));
    const leaving = new AbortController();
    const left = pair.send(0, { signal: leaving.signal }).catch(() => 'left');
    await until(() => pair.arrivals.length === 1);
    await sleep(200);
    leaving.abort();
    expect(await left).toBe('left');
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    await sleep(1200);
    expect(pair.started()).toEqual([0]);
  });

  test('has the whole of its execution time when it is sent again', async () => {
    await start(
      { RATE_MAX_WAIT_MS: '5000', UPSTREAM_RESPONSE_TIMEOUT_MS: '700', MAX_EXECUTION_MS: '700' },
      busyFor(1, '1'),
    );
    expect((await pair.send(0)).status).toBe(200);
    expect(pair.started()).toEqual([0, 0]);
  });
});
