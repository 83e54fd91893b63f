import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import {
  codeOf,
  DONE,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../support/numbered-messages.ts';
import { OTHER_USER } from '../support/relay.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const WINDOW = 300;

const pairs: WithNumberedMessages[] = [];
afterAll(() => Promise.all(pairs.map((pair) => pair.close())));

async function start(
  environment: Record<string, string>,
  answer?: Parameters<typeof startWithNumberedMessages>[1],
) {
  const pair = await startWithNumberedMessages({ RATE_WINDOW_MS: String(WINDOW), ...environment }, answer);
  pairs.push(pair);
  return pair;
}

describe('a message that the bot service answers with 429', () => {
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

  test.concurrent('is sent again after Retry-After, and the bot gets no other message before', async () => {
    const pair = await start({ RATE_MAX_WAIT_MS: '10000' }, busyFor(1, '2'));
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

  test.concurrent('delays the messages that already wait', async () => {
    const LONG = 1000;
    let refuse: (() => void) | undefined;
    const pair = await start(
      { RATE_LIMIT: '1', RATE_WINDOW_MS: String(LONG), RATE_MAX_WAIT_MS: '20000' },
      (socket) => {
        if (refuse) return void socket.write(DONE);
        refuse = () => busyFor(1, '2')(socket);
      },
    );
    const other = await pair.relay.signIn(OTHER_USER);
    const all = [pair.send(0)];
    await until(() => refuse !== undefined);
    all.push(pair.send(1, { cookie: other }));
    await until(() => pair.relay.open.count() === 2);
    await sleep(100);
    refuse?.();
    const refusedAt = performance.now();
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual([200, 200]);
    expect(pair.started()).toEqual([0, 0, 1]);
    const [, second, third] = pair.arrivals.map(({ at }) => at) as [number, number, number];
    expect(second - refusedAt).toBeGreaterThanOrEqual(1990);
    // The service may read the second one late.
    expect(third - second).toBeGreaterThanOrEqual(LONG / 2);
  });

  test.concurrent('is refused at once if Retry-After is longer than it may wait', async () => {
    const pair = await start({ RATE_MAX_WAIT_MS: '10000' }, busyFor(1, '20'));
    const awakeMs = countAwakeMs();
    const refused = await pair.send(0);
    expect(awakeMs()).toBeLessThan(5000);
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'upstream_rate_limited']);
    expect(refused.headers.get('retry-after')).toBe('20');
    const { slotWaitMs } = await pair.relay.logLine(({ outcome }) => outcome === 'upstream_rate_limited');
    expect(slotWaitMs).toBeLessThan(5000);
    // Another message to that bot is refused too.
    expect((await pair.send(1)).status).toBe(429);
    expect(pair.started()).toEqual([0]);
  });

  test.concurrent('may wait only for the rest of RATE_MAX_WAIT_MS', async () => {
    const pair = await start(
      { RATE_LIMIT: '1', RATE_WINDOW_MS: '3000', RATE_MAX_WAIT_MS: '3200' },
      (socket, { body }) => busyFor(body.includes('"n":1') ? 1 : 0, '3')(socket),
    );
    await pair.send(0);
    const refused = await pair.send(1);
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'upstream_rate_limited']);
    expect(pair.started()).toEqual([0, 1]);
  });

  test.concurrent(
    'is not sent again if its client leaves during the wait',
    whileAwake(async () => {
      const pair = await start({ RATE_MAX_WAIT_MS: '5000' }, busyFor(1, '1'));
      const leaving = new AbortController();
      const left = pair.send(0, { signal: leaving.signal }).catch(() => 'left');
      await until(() => pair.arrivals.length === 1);
      await sleep(200);
      leaving.abort();
      expect(await left).toBe('left');
      await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
      await sleep(1200);
      expect(pair.started()).toEqual([0]);
    }),
  );

  test.concurrent('has its full execution time again when it is sent again', async () => {
    const pair = await start(
      { RATE_MAX_WAIT_MS: '9000', UPSTREAM_RESPONSE_TIMEOUT_MS: '2500', MAX_EXECUTION_MS: '2500' },
      busyFor(1, '3'),
    );
    expect((await pair.send(0)).status).toBe(200);
    expect(pair.started()).toEqual([0, 0]);
  });
});
