import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import { failureOf } from '../harness/clients/error-event.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import {
  codeOf,
  DONE,
  range,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../harness/relay/numbered-messages.ts';
import { MESSAGE, startRelay } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/relay/relay-and-upstream.ts';

const BOT = 'acme/helper';
const PAUSE = 200;

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  await Promise.all(closings.map((close) => close()));
  stopRedis();
});

const busy = (retryAfter: string) => (socket: Socket) =>
  void socket.write(
    plainAnswer('429 Busy', ['Content-Type: application/json', `Retry-After: ${retryAfter}`], '{}'),
  );

interface Instances {
  readonly pair: WithNumberedMessages;
  /** Sends message `n` to one instance after the other. */
  send(n: number, signal?: AbortSignal): Promise<Response>;
}

/** Starts this many relays for one bot service, which gives the first messages these answers. */
async function start(
  environment: Record<string, string>,
  { count = 1, answers = [] }: { count?: number; answers?: ((socket: Socket) => void)[] },
): Promise<Instances> {
  const pair = await startWithNumberedMessages(environment, (socket) => {
    const answer = answers.shift() ?? (() => void socket.write(DONE));
    answer(socket);
  });
  closings.push(pair.close);
  const all: Pick<WithNumberedMessages, 'relay' | 'cookie'>[] = [pair];
  for (const _ of range(count - 1)) {
    const relay = await startRelay(pair.upstream.url, environment);
    closings.push(relay.close);
    all.push({ relay, cookie: await relay.signIn() });
  }
  return {
    pair,
    send(n, signal) {
      const { relay, cookie } = all[n % count] as WithNumberedMessages;
      const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
      return relay.send(cookie, { body, ...(signal && { signal }) });
    },
  };
}

const statuses = async (sent: Promise<Response>[]) => (await Promise.all(sent)).map(({ status }) => status);
const secondsIn = (answer: Response) => Number(answer.headers.get('retry-after'));

/** Tests for both stores of budgets; `shared` selects the store, for `count` instances. */
function contract({ shared, count }: { shared: () => Promise<Record<string, string>>; count: number }): void {
  const begin = async (answers: ((socket: Socket) => void)[], environment: Record<string, string> = {}) =>
    start(
      { RATE_LIMIT: '100', RATE_MAX_WAIT_MS: '20000', ...(await shared()), ...environment },
      { count, answers },
    );

  test.concurrent('a pause of a day is believed for a minute, which refused clients are told', async () => {
    const { pair, send } = await begin([busy('86400')], { RATE_MAX_WAIT_MS: '1000' });
    const refused = await send(0);
    expect(await failureOf(refused)).toMatchObject({
      ...{ status: 429, code: 'upstream_rate_limited', retryAfter: 60 },
    });
    for (const n of [1, 2]) {
      const other = await send(n);
      expect([other.status, await codeOf(other)]).toEqual([429, 'rate_limited']);
      expect(secondsIn(other) > 0 && secondsIn(other) <= 60).toBe(true);
    }
    expect(pair.started()).toEqual([0]);
  });

  test.concurrent('messages go again, all that the budget allows, when the pause is over', async () => {
    const { pair, send } = await begin([]);
    await pair.relay.budgets.pause(BOT, PAUSE);
    const sent = range(8).map((n) => send(n));
    expect(await statuses(sent)).toEqual(sent.map(() => 200));
    expect(pair.arrivals).toHaveLength(8);
  });
}

describe('if the bot service asks for a very long pause, with budgets in memory:', () => {
  contract({ shared: async () => ({}), count: 1 });
});

describeWithRedis('if the bot service asks for a very long pause, at two instances:', () => {
  const shared = async () => ({ REDIS_URL: (await startRedis()).url });
  contract({ shared, count: 2 });
});
