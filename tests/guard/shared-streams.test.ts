import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

let redis: RedisServer;
let pair: RelayAndUpstream;
let other: TestRelay;
const clients: RawClient[] = [];
let messages = 0;

/** Starts two relays with one Redis; a user may have two streams. */
async function start(): Promise<void> {
  redis = await startRedis();
  // A run that nobody reads is over at once.
  const environment = { MAX_STREAMS_PER_USER: '2', JOIN_GRACE_MS: '0', REDIS_URL: redis.url };
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), environment);
  other = await startRelay(pair.upstream.url, environment, { commandTimeoutMs: 500 });
}

/** Sends a message to a relay; resolves when the head of the answer has arrived. */
async function send({ port }: TestRelay): Promise<{ client: RawClient; status: number }> {
  // Each is a message of its own: the same bytes would join its run.
  const body = JSON.stringify({ text: `hi ${++messages}` });
  const client = rawClient(port, rawMessage({ cookie: pair.cookie, body }));
  clients.push(client);
  await client.waitFor('\r\n\r\n');
  return { client, status: parseAnswer(client.text()).status };
}

/** How many places are taken in Redis. */
async function taken(): Promise<number> {
  const [key] = (await redis.command('KEYS', 'bot-relay:streams:*')) as string[];
  return key === undefined ? 0 : ((await redis.command('ZCARD', key)) as number);
}

describeWithRedis('a user at two instances', () => {
  beforeEach(start);
  afterEach(async () => {
    for (const { socket } of clients.splice(0)) socket.destroy();
    await other.close();
    await pair.close();
    stopRedis();
  });

  test('has one limit of open streams for both', async () => {
    expect((await send(pair.relay)).status).toBe(200);
    expect((await send(other)).status).toBe(200);
    for (const relay of [pair.relay, other]) {
      const { client, status } = await send(relay);
      expect(status).toBe(429);
      await client.waitFor('"}');
      expectProblem(parseAnswer(client.text()), 429, 'too_many_streams');
    }
    expect(pair.upstream.sockets).toHaveLength(2);
  });

  test('can use a place at one instance that was freed at the other', async () => {
    await send(pair.relay);
    const { client } = await send(other);
    client.socket.destroy();
    await until(async () => (await taken()) === 1);
    expect((await send(pair.relay)).status).toBe(200);
    expect((await send(other)).status).toBe(429);
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await until(async () => (await taken()) === 1);
    expect((await send(other)).status).toBe(200);
  });

  test('gets every place back when an instance shuts down', async () => {
    await send(other);
    await send(other);
    expect(await taken()).toBe(2);
    await other.close();
    expect(await taken()).toBe(0);
  });

  test('keeps its stream while Redis is away, and a second one is refused', async () => {
    const { client } = await send(pair.relay);
    redis.pause();
    expect((await send(other)).status).toBe(503);
    await redis.stop();
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: still here\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.waitFor('still here');
    await client.waitFor('\r\n0\r\n\r\n');
    await until(() => pair.relay.open.count() === 0);
    await redis.start();
    while ((await send(other)).status === 503) await sleep(20);
  });
});
