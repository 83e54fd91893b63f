import { afterAll, afterEach, expect, test } from '@jest/globals';
import { failureOf } from '../harness/clients/error-event.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { codeOf, range, startWithNumberedMessages } from '../harness/relay/numbered-messages.ts';
import { MESSAGE, startRelay } from '../harness/relay/relay.ts';
import { plainAnswer, until } from '../harness/relay/relay-and-upstream.ts';

const closings: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(closings.splice(0).map((close) => close()));
});
afterAll(() => stopRedis());

/** Starts two relays with one Redis for one bot service, whose endpoint takes one message in a window. */
async function start(environment = {}, answer?: Parameters<typeof startWithNumberedMessages>[1]) {
  const redis = await startRedis();
  const wire = await faultProxy(redis.url);
  const all = { RATE_LIMIT: '1', REDIS_URL: wire.url, ...environment };
  const pair = await startWithNumberedMessages(all, answer);
  const relay = await startRelay(pair.upstream.url, all);
  closings.push(pair.close, relay.close, async () => wire.close());
  const instances = [pair, { relay, cookie: await relay.signIn() }] as const;
  return {
    pair,
    wire,
    /** Sends message `n` to the first instance if `n` is even, else to the second. */
    send(n: number, signal?: AbortSignal): Promise<Response> {
      const { relay, cookie } = instances[n % 2 ? 1 : 0];
      const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
      return relay.send(cookie, { body, ...(signal && { signal }) });
    },
    slots: async () => Number(await redis.command('ZCARD', 'bot-relay:{budget:acme/helper}:slots')),
  };
}

describeWithRedis('the budget of several instances', () => {
  test('gives a slot that was given back at one instance to a message at another', async () => {
    const { pair, send, slots } = await start({ RATE_WINDOW_MS: '2000', RATE_MAX_WAIT_MS: '3000' });
    await send(0);
    const leaving = new AbortController();
    const left = send(2, leaving.signal).catch(() => 'left');
    await until(async () => (await slots()) === 2);
    leaving.abort();
    expect(await left).toBe('left');
    await until(async () => (await slots()) === 1);
    expect((await send(1)).status).toBe(200);
    expect(pair.started()).toEqual([0, 1]);
  });

  test("is paused at all instances by the service's 429 to one", async () => {
    const { pair, send } = await start({ RATE_LIMIT: '5', RATE_MAX_WAIT_MS: '1000' }, (socket) => {
      socket.write(plainAnswer('429 Busy', ['Content-Type: application/json', 'Retry-After: 60'], '{}'));
    });
    expect(await failureOf(await send(0))).toMatchObject({ code: 'upstream_rate_limited', status: 429 });
    expect(await Promise.all(range(4).map(async (n) => codeOf(await send(1 + n))))).toEqual(
      range(4).map(() => 'rate_limited'),
    );
    expect(pair.started()).toEqual([0]);
  });

  test('does not start a waiting message after Redis went away', async () => {
    const { pair, wire, send, slots } = await start({ RATE_WINDOW_MS: '3000', RATE_MAX_WAIT_MS: '5000' });
    await send(0);
    const waiting = send(2);
    await until(async () => (await slots()) === 2);
    wire.cut();
    expect((await waiting).status).toBe(503);
    expect(pair.started()).toEqual([0]);
  });
});
