import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import { failureOf } from '../harness/clients/error-event.ts';
import {
  DONE,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../harness/relay/numbered-messages.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';

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

  test.concurrent('is sent again after Retry-After', async () => {
    const pair = await start({ RATE_MAX_WAIT_MS: '60000' }, busyFor(1, '1'));
    expect((await pair.send(0)).status).toBe(200);
    expect(pair.started()).toEqual([0, 0]);
    expect(await pair.relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({
      outcome: 'ok',
      upstreamStatus: 200,
    });
  });

  test.concurrent('is refused if Retry-After is longer than it may wait', async () => {
    const pair = await start({ RATE_MAX_WAIT_MS: '10000' }, busyFor(1, '20'));
    const refused = await pair.send(0);
    expect(await failureOf(refused)).toMatchObject({
      status: 429,
      code: 'upstream_rate_limited',
      retryAfter: 20,
    });
    // Another message to that bot is refused too, before it leaves.
    expect((await pair.send(1)).status).toBe(429);
    expect(pair.started()).toEqual([0]);
  });

  test.concurrent('is not sent again if its client leaves during the wait, and its slot is given back', async () => {
    const pair = await start({ RATE_MAX_WAIT_MS: '120000' }, busyFor(1, '60'));
    const { budgets } = pair.relay;
    const givenBack = Promise.withResolvers<void>();
    const waits = Promise.withResolvers<void>();
    const { cancel, pause } = budgets;
    budgets.pause = async (...given) => {
      await pause(...given);
      waits.resolve();
    };
    budgets.cancel = async (...given) => {
      await cancel(...given);
      givenBack.resolve();
    };
    const leaving = new AbortController();
    const left = pair.send(0, { signal: leaving.signal }).catch(() => 'left');
    await waits.promise;
    leaving.abort();
    expect(await left).toBe('left');
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    await givenBack.promise;
    expect(pair.started()).toEqual([0]);
  });
});
