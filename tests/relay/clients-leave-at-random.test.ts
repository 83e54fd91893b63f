import { afterEach, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const CLIENTS = 250;
const AT_ONCE = 50;
/** How long a whole answer takes, in ms. */
const ANSWER_MS = 120;
const LEAVING = ['destroy', 'resetAndDestroy', 'end'] as const;
/** When each client leaves, and how; the same in every run. */
const LEAVES = fc.sample(fc.tuple(fc.nat({ max: ANSWER_MS }), fc.constantFrom(...LEAVING)), {
  ...{ numRuns: CLIENTS, seed: 37 },
});

let messages = 0;
let pair: RelayAndUpstream;
let redis: RedisServer | undefined;
afterEach(async () => {
  await pair.close();
  stopRedis();
  redis = undefined;
});

/** Starts a bot service that answers in three parts, with a pause before each. */
async function start(environment: Record<string, string> = {}): Promise<void> {
  pair = await startRelayAndUpstream(
    async (socket) => {
      for (const part of [STREAM_HEAD, chunk('data: 1\n\n'), LAST_CHUNK]) {
        await sleep(ANSWER_MS / 4);
        socket.write(part);
      }
    },
    { METRICS_PORT: '9090', SHUTDOWN_GRACE_MS: '60000', ...environment },
  );
}

/** Sends a message and leaves after so many ms. */
async function sendAndLeave([afterMs, leave]: (typeof LEAVES)[number]): Promise<RawClient> {
  // Each is a message of its own: the same bytes would join its run.
  const body = JSON.stringify({ text: `hi ${++messages}` });
  const client = rawClient(pair.relay.port, rawMessage({ cookie: pair.cookie, body }));
  await sleep(afterMs);
  client.socket[leave]();
  await client.closed;
  return client;
}

/** What the relay holds for messages, by name. */
async function held(): Promise<Record<string, number>> {
  const text = await pair.relay.metricsText();
  const leases = ((await redis?.command('KEYS', 'bot-relay:streams:*')) as string[] | undefined) ?? [];
  return {
    open: pair.relay.open.count(),
    openMessages: total(text, 'bot_relay_open_messages'),
    openStreams: total(text, 'bot_relay_open_streams'),
    leases: leases.length,
    runBytes: pair.relay.runs.bytes(),
  };
}

async function expectNothingHeld(): Promise<void> {
  await until(async () => Object.values(await held()).every((count) => count === 0));
  // The grace period is a minute: with nothing open, closing does not take it.
  await pair.relay.close();
  pair.relay.close = async () => {};
}

/** Sends so many messages at a time that some wait for a slot. */
async function leaveAtRandom(): Promise<void> {
  const first = pair.ask();
  await first.waitFor('data: 1');
  first.socket.destroy();
  for (let left = 0; left < CLIENTS; left += AT_ONCE)
    await Promise.all(LEAVES.slice(left, left + AT_ONCE).map(sendAndLeave));
  await expectNothingHeld();
}

/** The slots are for less than half of the messages: the other clients leave while theirs waits. */
const PACED = { RATE_LIMIT: '100', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '60000' };

test('clients that leave at random moments leave nothing behind', async () => {
  await start(PACED);
  await leaveAtRandom();
});

describeWithRedis('with Redis', () => {
  test('clients that leave at random moments leave nothing behind', async () => {
    redis = await startRedis();
    await start({ ...PACED, REDIS_URL: redis.url });
    await leaveAtRandom();
  });

  test('a client that leaves while its session is looked up leaves nothing behind', async () => {
    redis = await startRedis();
    await start({ REDIS_URL: redis.url });
    redis.pause();
    const get = jest.spyOn(pair.relay.sessions, 'get');
    const clients = Array.from({ length: 20 }, () => pair.ask());
    await until(() => get.mock.calls.length === 20);
    for (const { socket } of clients) socket.destroy();
    await Promise.all(clients.map(({ closed }) => closed));
    // The relay is in this process, and has seen it by then.
    for (let n = 0; n < 10; n += 1) await new Promise(setImmediate);
    redis.resume();
    await until(() => pair.relay.logs.filter(({ outcome }) => outcome === 'client_closed').length === 20);
    // Redis answers in order: after this answer, all earlier ones have arrived.
    expect(await pair.relay.signIn()).toContain('session');
    await expectNothingHeld();
    expect(pair.upstream.requests).toHaveLength(0);
  });
});
