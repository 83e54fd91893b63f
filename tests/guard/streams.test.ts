import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const GUESTS = { AUTH_MODE: 'guest', TRUST_PROXY: '1' };
const END = Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]);

let upstream: RawUpstream;
/** How the service answers. */
let answer: string;
let relays: TestRelay[] = [];
let redis: RedisServer;
const clients: RawClient[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const { socket } of clients.splice(0)) socket.destroy();
  for (const relay of relays.splice(0)) await relay.close();
  await upstream.close();
});
afterAll(() => stopRedis());

/** A user may have two streams, and a run that nobody reads is over at once. */
async function start(shared: boolean, more: Record<string, string> = {}): Promise<void> {
  answer = STREAM_HEAD;
  upstream = await startRawUpstream((socket) => socket.write(answer));
  if (shared) redis = await startRedis();
  const REDIS_URL = shared ? { REDIS_URL: redis.url } : {};
  const environment = { MAX_STREAMS_PER_USER: '2', JOIN_GRACE_MS: '0', ...REDIS_URL, ...more };
  relays = [await startRelay(upstream.url, environment)];
  if (shared) relays.push(await startRelay(upstream.url, environment, { commandTimeoutMs: 500 }));
}

let messages = 0;
/** Each is a message of its own, since the same bytes would join its run, and goes to the next instance. */
function ask(cookie: string, headers: readonly string[] = []) {
  const body = JSON.stringify({ text: `hi ${++messages}` });
  const id = `message-number-${messages}`;
  const relay = relays[messages % relays.length] as TestRelay;
  const client = rawClient(
    relay.port,
    rawMessage({ cookie, body, headers: [`X-Request-Id: ${id}`, ...headers] }),
  );
  clients.push(client);
  return { client, over: () => relay.logLine(({ requestId, msg }) => requestId === id && msg === 'request') };
}
/** Sends a message; resolves when the head of the answer has arrived. */
async function send(cookie: string, address?: string) {
  const { client, over } = ask(cookie, address === undefined ? [] : [`X-Forwarded-For: ${address}`]);
  await client.waitFor('\r\n\r\n');
  return { client, over, status: parseAnswer(client.text()).status };
}
const statuses = async (...senders: Parameters<typeof send>[]) => {
  const all: number[] = [];
  for (const sender of senders) all.push((await send(...sender)).status);
  return all;
};
async function expectFull(cookie: string) {
  for (const _ of relays) {
    const { client } = await send(cookie);
    await client.waitFor('"}');
    const refused = parseAnswer(client.text());
    expectProblem(refused, 429, 'too_many_streams', { retryable: 'new message' });
    expect(refused.headers['retry-after']).toBe('1');
    expect(refused.headers).not.toHaveProperty('ratelimit');
  }
}
/** One cookie is good at all instances, if they are shared. */
const signIn = (user?: typeof OTHER_USER) => (relays[0] as TestRelay).signIn(user);
async function guest(address: string): Promise<string> {
  const headers = { 'X-Forwarded-For': address };
  const { headers: got } = await call(relays[0]?.port ?? 0, '/auth/guest', { method: 'POST', headers });
  return String(got['set-cookie']).split(';')[0] as string;
}

/** Tests for both stores; if it is shared, the messages go to two instances in turn. */
function contract(shared: boolean): void {
  test('a user may have MAX_STREAMS_PER_USER in all sessions together, and another user too', async () => {
    await start(shared);
    const [one, again] = [await signIn(), await signIn()];
    expect(await statuses([one], [again])).toEqual([200, 200]);
    await expectFull(one);
    await expectFull(again);
    expect(upstream.sockets).toHaveLength(2);
    expect(await statuses([await signIn(OTHER_USER)])).toEqual([200]);
  });

  test('all guests of one address may have MAX_STREAMS_PER_ADDRESS together', async () => {
    await start(shared, { ...GUESTS, MAX_STREAMS_PER_ADDRESS: '3' });
    const [here, there] = ['2001:db8:0:1::1', '2001:db8:0:101::1'];
    const [ann, ben] = [await guest(here), await guest('2001:db8:0:1::2')];
    const asked = [
      [ann, here],
      [ann, here],
      [ann, here],
      [ben, here],
      [ben, here],
    ] as [string, string][];
    expect(await statuses(...asked)).toEqual([200, 200, 429, 200, 429]);
    // A message that was refused for its address took no place of the guest.
    expect(await statuses([ben, there], [ben, there])).toEqual([200, 429]);
    expect(await statuses([await guest(there), there])).toEqual([200]);
  });

  test.each<[string, (cookie: string) => Promise<unknown>]>([
    [
      'a stream that ended',
      async (cookie) => {
        const { over } = await send(cookie);
        upstream.sockets.at(-1)?.write(END);
        await over();
      },
    ],
    [
      'a stream whose client left',
      async (cookie) => {
        const { client, over } = await send(cookie);
        client.socket.destroy();
        await over();
      },
    ],
    [
      'a message whose client left before it was answered',
      async (cookie) => {
        answer = '';
        const { client, over } = ask(cookie);
        await upstream.nextRequest();
        answer = STREAM_HEAD;
        client.socket.destroy();
        await over();
      },
    ],
    [
      'a message that failed',
      async (cookie) => {
        answer = 'HTTP/1.1 204 No Content\r\n\r\n';
        const { client, over } = await send(cookie);
        answer = STREAM_HEAD;
        await client.waitFor('}\n\n');
        const failure = { maybeStarted: true, retryable: false, upstreamStatus: 204 } as const;
        expectErrorEvent(parseAnswer(client.text()), 502, 'upstream_bad_response', failure);
        await over();
      },
    ],
  ])('a user gets exactly one place back from %s, at every instance', async (_what, end) => {
    await start(shared);
    const cookie = await signIn();
    // The places in Redis are given back a moment later.
    const free = () =>
      until(
        async () =>
          !shared || ((await redis.command('KEYS', 'bot-relay:streams:*')) as string[]).length === 0,
      );
    for (const _ of relays) {
      await end(cookie);
      await free();
    }
    expect(await statuses([cookie], [cookie])).toEqual([200, 200]);
    await expectFull(cookie);
  });
}

describe('streams counted in memory:', () => {
  contract(false);

  test('a message needs no place while its body still arrives', async () => {
    await start(false);
    const cookie = await signIn();
    await send(cookie);
    const headers = ['Expect: 100-continue', 'Content-Length: 13'];
    const whole = rawMessage({ cookie, body: '', headers }).replace('Content-Length: 0\r\n', '');
    const uploading = rawClient(relays[0]?.port ?? 0, `${whole}{"text"`);
    clients.push(uploading);
    await uploading.waitFor('100 Continue\r\n\r\n');
    expect(await statuses([cookie])).toEqual([200]);
    uploading.socket.write(':"hi"}');
    await uploading.waitFor('"}');
    const [, refused = ''] = uploading.text().split('100 Continue\r\n\r\n');
    expectProblem(parseAnswer(refused), 429, 'too_many_streams');
    expect(upstream.requests).toHaveLength(2);
  });

  test('a client that leaves while its place is requested keeps none, and its message is not sent', async () => {
    await start(false);
    const cookie = await signIn();
    const { streams } = relays[0] as TestRelay;
    const acquire = streams.acquire.bind(streams);
    const asked = Promise.withResolvers<() => void>();
    const released = Promise.withResolvers<void>();
    streams.acquire = async (holder, max) => {
      const lease = await acquire(holder, max);
      await new Promise<void>((go) => asked.resolve(go));
      const release = () => {
        lease?.release();
        released.resolve();
      };
      return lease && { release };
    };
    const { client, over } = ask(cookie);
    const answerNow = await asked.promise;
    client.socket.destroy();
    await over();
    streams.acquire = acquire;
    answerNow();
    await released.promise;
    expect(await statuses([cookie], [cookie])).toEqual([200, 200]);
    expect(upstream.requests).toHaveLength(2);
    await expectFull(cookie);
  });

  test('slots are shared out by user, whatever the session, and of guests by their /56 of IPv6, too', async () => {
    await start(false);
    const holdersOf = async (...senders: Parameters<typeof send>[]) => {
      const reserve = jest.spyOn((relays[0] as TestRelay).budgets, 'reserve');
      await statuses(...senders);
      return reserve.mock.calls.map(([{ holders }]) => holders);
    };
    const [one, again, other] = await holdersOf(
      [await signIn()],
      [await signIn()],
      [await signIn(OTHER_USER)],
    );
    expect([one?.length, again]).toEqual([1, one]);
    expect(other).not.toEqual(one);
    relays.push(relays[0] as TestRelay);
    relays[0] = await startRelay(upstream.url, { ...GUESTS });
    const mixed = relays.splice(1);
    const [ann, ben] = [await guest('2001:db8:0:1::1'), await guest('2001:db8:0:1::2')];
    const [here, near, far] = await holdersOf(
      [ann, '2001:db8:0:1::1'],
      [ben, '2001:db8:0:1::2'],
      [ann, '2001:db8:0:101::1'],
    );
    relays.push(...mixed);
    expect(here).toHaveLength(2);
    expect([near?.[0] === here?.[0], near?.[1] === here?.[1]]).toEqual([false, true]);
    expect([far?.[0] === here?.[0], far?.[1] === here?.[1]]).toEqual([true, false]);
  });
});

describeWithRedis('streams counted in Redis:', () => {
  contract(true);
  const taken = async () => {
    const [key] = (await redis.command('KEYS', 'bot-relay:streams:*')) as string[];
    return key === undefined ? 0 : ((await redis.command('ZCARD', key)) as number);
  };

  test('the keys name neither users nor sessions, and an instance that shuts down gives all places back', async () => {
    await start(true, { RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', MAX_STREAMS_PER_USER: '1' });
    const cookie = await signIn();
    expect(await statuses([cookie])).toEqual([200]);
    await expectFull(cookie);
    const keys = (await redis.command('KEYS', 'bot-relay:streams:*')) as string[];
    expect(keys).toEqual([expect.stringMatching(/^bot-relay:streams:[\w-]{43}$/)]);
    const slots = await redis.command('ZRANGE', 'bot-relay:{budget:acme/helper}:slots', '0', '-1');
    expect(slots).toEqual([expect.stringMatching(/^\d{16} [\w-]{43} [\w-]{36}$/)]);
    for (const relay of relays.splice(0)) await relay.close();
    expect(await taken()).toBe(0);
  });

  test('a stream goes on while Redis is away, and a second one is refused', async () => {
    await start(true);
    const cookie = await signIn();
    // To the first instance, whose commands have no short deadline.
    if ((messages + 1) % 2) messages += 1;
    const { client, over } = await send(cookie);
    redis.pause();
    expect(await statuses([cookie])).toEqual([503]);
    await redis.stop();
    upstream.sockets[0]?.write(END);
    await client.waitFor('data: 1');
    await client.waitFor('\r\n0\r\n\r\n');
    await over();
    await redis.start();
    await until(async () => (await send(cookie)).status !== 503, 20);
  });
});
