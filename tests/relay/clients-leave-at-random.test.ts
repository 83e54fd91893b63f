import { afterEach, expect, test } from '@jest/globals';
import { total } from '../support/metric-samples.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';

const CLIENTS = 250;
const AT_ONCE = 50;
/** How long a whole answer takes, in ms. */
const ANSWER_MS = 120;
/** Every message must be forgotten within this time, in ms. */
const FORGOTTEN_MS = 3_000;
const LEAVING = ['destroy', 'resetAndDestroy', 'end'] as const;

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

/** Sends a message and leaves at a random moment. */
async function sendAndLeave(): Promise<RawClient> {
  const client = rawClient(pair.relay.port, rawMessage({ cookie: pair.cookie }));
  await sleep(Math.random() * ANSWER_MS);
  client.socket[LEAVING[Math.floor(Math.random() * LEAVING.length)] as 'end']();
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
  };
}

async function expectNothingHeld(): Promise<void> {
  const endsAt = performance.now() + FORGOTTEN_MS;
  const isHeld = async () => Object.values(await held()).some((count) => count > 0);
  while (performance.now() < endsAt && (await isHeld())) await sleep(20);
  expect(await held()).toEqual({ open: 0, openMessages: 0, openStreams: 0, leases: 0 });
  // The grace period is a minute: with nothing open, closing does not take it.
  await pair.relay.close();
  pair.relay.close = async () => {};
}

/** Sends so many messages at a time that some wait for a slot. */
async function leaveAtRandom(): Promise<void> {
  for (let left = 0; left < CLIENTS; left += AT_ONCE)
    await Promise.all(Array.from({ length: AT_ONCE }, sendAndLeave));
  // Some clients left before their message was sent to the bot service, and some after.
  expect(pair.upstream.requests.length).toBeGreaterThan(0);
  expect(pair.upstream.requests.length).toBeLessThan(CLIENTS);
  await expectNothingHeld();
}

const PACED = { RATE_LIMIT: '50', RATE_WINDOW_MS: '300', RATE_MAX_WAIT_MS: '60000' };

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
    const clients = Array.from({ length: 20 }, () => pair.ask());
    await sleep(100);
    for (const { socket } of clients) socket.destroy();
    await sleep(100);
    redis.resume();
    while (pair.relay.logs.filter(({ outcome }) => outcome === 'client_closed').length < 20) await sleep(10);
    // Redis answers in order: after this answer, all earlier ones have arrived.
    expect(await pair.relay.signIn()).toContain('session');
    await sleep(50);
    expect(pair.upstream.requests).toHaveLength(0);
    await expectNothingHeld();
  });
});
