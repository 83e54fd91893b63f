import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { memoryStreamLeases } from '../../src/pace/memory-stream-leases.ts';
import type { StreamLease, StreamLeases } from '../../src/pace/places.ts';
import { redisStreamLeases } from '../../src/pace/redis-stream-leases.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import { askLive, LIVE, LIVE_KINDS, openKind, openLive } from '../harness/clients/live.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { eventually, until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import {
  answering,
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';
import { range } from '../harness/relay/numbered-messages.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { withSandboxes } from '../harness/service/launched-sandboxes.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const GUESTS = { AUTH_MODE: 'guest', TRUST_PROXY: '1' };
const STREAM = Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]);

let upstream: RawUpstream;
/** How the service answers. */
let answer: string | Buffer;
let relays: TestRelay[] = [];
let redis: RedisServer;
const opened: { close(): unknown }[] = [];
async function closeAll(): Promise<void> {
  for (const one of opened.splice(0).reverse()) await one.close();
}
afterEach(() => {
  jest.restoreAllMocks();
  return closeAll();
});
afterAll(() => stopRedis());

/** A user may have two streams, and a run that nobody reads is over at once. */
async function start(shared: boolean, more: Record<string, string> = {}): Promise<void> {
  answer = STREAM;
  upstream = await startRawUpstream(
    withSandboxes(
      () => upstream,
      (socket) => socket.write(answer),
    ),
  );
  opened.push(upstream);
  if (shared) redis = await startRedis();
  const REDIS_URL = shared ? { REDIS_URL: redis.url } : {};
  const environment = { MAX_STREAMS_PER_USER: '2', JOIN_GRACE_MS: '0', ...REDIS_URL, ...more };
  relays = [await startRelay(upstream.url, environment)];
  if (shared) relays.push(await startRelay(upstream.url, environment, { commandTimeoutMs: 500 }));
  opened.push(...relays);
}
const first = () => relays[0] as TestRelay;
function keep<One extends RawClient>(client: One): One {
  opened.push({ close: () => client.socket.destroy() });
  return client;
}

let messages = 0;
/** Each is a message of its own, since the same bytes would join its run, and goes to the next instance. */
function ask(cookie: string, headers: readonly string[] = []) {
  const body = JSON.stringify({ text: `hi ${++messages}` });
  const id = `message-number-${messages}`;
  const relay = relays[messages % relays.length] as TestRelay;
  const message = rawMessage({ cookie, body, headers: [`X-Request-Id: ${id}`, ...headers] });
  const client = keep(rawClient(relay.port, message));
  return { client, over: () => relay.logLine(({ requestId, msg }) => requestId === id && msg === 'request') };
}
/** Sends a message; resolves when the head of the answer has arrived. */
async function send(cookie: string, address?: string) {
  const { client, over } = ask(cookie, address === undefined ? [] : [`X-Forwarded-For: ${address}`]);
  await client.waitFor('\r\n\r\n');
  return { client, over, status: parseAnswer(client.text()).status };
}
/** Opens a live stream of a conversation, or of the files of its sandbox; resolves as `send`. */
async function live(cookie: string, address = '', kind = LIVE_KINDS[0]) {
  const id = `live-stream-${++messages}`;
  const client = keep(openKind({ relay: first(), cookie }, kind, id, [`X-Forwarded-For: ${address}`]));
  await client.waitFor('\r\n\r\n');
  const over = () => first().logLine(({ requestId }) => requestId === kind.id + id);
  return { client, over, status: parseAnswer(client.text()).status };
}
const watch = (cookie: string) => live(cookie, '', LIVE_KINDS[1]);

/** What becomes of them, one after the other. */
async function statuses(open: typeof send, ...senders: Parameters<typeof send>[]) {
  const all: number[] = [];
  for (const sender of senders) all.push((await open(...sender)).status);
  return all;
}
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
const signIn = (user?: typeof OTHER_USER) => first().signIn(user);
async function guest(address: string): Promise<string> {
  const headers = { 'X-Forwarded-For': address };
  const { headers: got } = await call(first().port, '/auth/guest', { method: 'POST', headers });
  return String(got['set-cookie']).split(';')[0] as string;
}

/** Tests for both stores; if it is shared, the messages go to two instances in turn. */
function contract(shared: boolean): void {
  test('a user may have MAX_STREAMS_PER_USER in all sessions together, and another user too', async () => {
    await start(shared);
    const [one, again] = [await signIn(), await signIn()];
    expect(await statuses(send, [one], [again])).toEqual([200, 200]);
    await expectFull(one);
    await expectFull(again);
    expect(upstream.sockets).toHaveLength(2);
    expect(await statuses(send, [await signIn(OTHER_USER)])).toEqual([200]);
  });

  test('of messages that come at once, as many have a place as may', async () => {
    await start(shared);
    const cookie = await signIn();
    const all = await Promise.all(range(8).map(() => send(cookie)));
    expect(all.map(({ status }) => status).sort()).toEqual([200, 200, ...Array(6).fill(429)]);
  });

  test('all guests of one address may have MAX_STREAMS_PER_ADDRESS together', async () => {
    await start(shared, { ...GUESTS, MAX_STREAMS_PER_ADDRESS: '3' });
    const [here, there] = ['2001:db8:0:1::1', '2001:db8:0:101::1'];
    const [ann, ben] = [await guest(here), await guest('2001:db8:0:1::2')];
    expect(await statuses(send, [ann, here], [ann, here], [ann, here], [ben, here], [ben, here])).toEqual([
      200, 200, 429, 200, 429,
    ]);
    // A message that was refused for its address took no place of the guest.
    expect(await statuses(send, [ben, there], [ben, there])).toEqual([200, 429]);
    const last = await guest(there);
    expect(await statuses(send, [last, there])).toEqual([200]);
    expect(await statuses(live, [ann, here], [ann, here], [ann, here], [ben, here], [ben, here])).toEqual([
      200, 200, 429, 200, 429,
    ]);
  });

  test('a user gets exactly one place back from each message that is over, at every instance', async () => {
    await start(shared);
    const cookie = await signIn();
    // The places in Redis are given back a moment later.
    const free = () =>
      until(
        async () =>
          !shared || ((await redis.command('KEYS', 'bot-relay:streams:*')) as string[]).length === 0,
      );
    const ends: readonly (() => Promise<() => Promise<unknown>>)[] = [
      async () => {
        const { over } = await send(cookie);
        upstream.sockets.at(-1)?.write(LAST_CHUNK);
        return over;
      },
      async () => {
        const { client, over } = await send(cookie);
        client.socket.destroy();
        return over;
      },
      // Before it was answered.
      async () => {
        answer = '';
        const { client, over } = ask(cookie);
        await upstream.nextRequest();
        client.socket.destroy();
        return over;
      },
      async () => {
        answer = 'HTTP/1.1 204 No Content\r\n\r\n';
        const { client, over } = await send(cookie);
        await client.waitFor('}\n\n');
        const failure = { maybeStarted: true, retryable: false, upstreamStatus: 204 } as const;
        expectErrorEvent(parseAnswer(client.text()), 502, 'upstream_bad_response', failure);
        return over;
      },
    ];
    for (const end of ends) {
      for (const _ of relays) {
        await (await end())();
        answer = STREAM;
        await free();
      }
      const both = [await send(cookie), await send(cookie)];
      expect(both.map(({ status }) => status)).toEqual([200, 200]);
      await expectFull(cookie);
      for (const { client, over } of both) {
        client.socket.destroy();
        await over();
      }
      await free();
    }
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
    const uploading = keep(rawClient(first().port, `${whole}{"text"`));
    await uploading.waitFor('100 Continue\r\n\r\n');
    expect(await statuses(send, [cookie])).toEqual([200]);
    uploading.socket.write(':"hi"}');
    await uploading.waitFor('"}');
    const [, refused = ''] = uploading.text().split('100 Continue\r\n\r\n');
    expectProblem(parseAnswer(refused), 429, 'too_many_streams');
    expect(upstream.requests).toHaveLength(2);
  });

  test('a client that leaves while its place is requested keeps none, and its message is not sent', async () => {
    await start(false);
    const cookie = await signIn();
    const { streams } = first().parts;
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
    expect(await statuses(send, [cookie], [cookie])).toEqual([200, 200]);
    expect(upstream.requests).toHaveLength(2);
    await expectFull(cookie);
  });
});

test('a place in memory that is given back twice is one place', async () => {
  const leases = memoryStreamLeases();
  const [one] = [await leases.acquire('ann', 2), await leases.acquire('ann', 2)];
  one?.release();
  one?.release();
  expect(await leases.acquire('ann', 2)).toBeDefined();
  expect(await leases.acquire('ann', 2)).toBeUndefined();
});

describe('live streams', () => {
  test('of conversations and of files have places beside those for messages, and beside each other', async () => {
    await start(false, { OPERATIONS: 'message,chat,sandbox' });
    const cookie = await signIn();
    const gone: Awaited<ReturnType<typeof live>>[] = [];
    for (const open of [live, watch]) {
      gone.push(await open(cookie));
      expect(await statuses(open, [cookie], [cookie])).toEqual([200, 429]);
    }
    expectProblem(await askLive({ relay: first(), cookie }), 429, 'too_many_streams');
    expect(await statuses(send, [cookie], [cookie], [cookie])).toEqual([200, 200, 429]);
    expect(await statuses(live, [await signIn(OTHER_USER)])).toEqual([200]);
    for (const [n, open] of [live, watch].entries()) {
      gone[n]?.client.socket.destroy();
      await gone[n]?.over();
      expect(await statuses(open, [cookie], [cookie])).toEqual([200, 429]);
    }
  });

  test('have one budget with the messages of both path shapes, and those of files one of their own', async () => {
    const limits = { RATE_LIMIT: '2', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' };
    await start(false, { OPERATIONS: 'message,chat,sandbox', ...limits });
    const cookie = await signIn();
    expect(await statuses(live, [cookie])).toEqual([200]);
    await keep(openLive({ relay: first(), cookie }, { target: `/generic${LIVE}` })).waitFor('200 OK');
    expect(await statuses(send, [cookie])).toEqual([429]);
    expect(upstream.requests.map(({ requestLine }) => requestLine.split(' ')[0])).toEqual(['GET', 'GET']);
    expect(await statuses(watch, [cookie], [cookie])).toEqual([200, 200]);
  });

  test('wait for 30 seconds at most, whatever RATE_MAX_WAIT_MS says', async () => {
    await start(false, { RATE_LIMIT: '1', RATE_WINDOW_MS: '3600000', RATE_MAX_WAIT_MS: '600000' });
    const cookie = await signIn();
    expect(await statuses(live, [cookie])).toEqual([200]);
    const { setTimeout: real } = globalThis;
    const waits: (() => void)[] = [];
    jest.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms: number) => {
      if (ms === 30_000) waits.push(run);
      return real(run, ms);
    }) as typeof setTimeout);
    const asked = askLive({ relay: first(), cookie });
    await until(() => waits.length === 1);
    // Its time is over.
    waits[0]?.();
    const refused = await asked;
    expectProblem(refused, 429, 'rate_limited');
    expect(refused.headers['retry-after']).toBe('1');
    expect(upstream.requests).toHaveLength(1);
  });

  test('whose client leaves while they wait give back their slot and their place', async () => {
    await start(false, { RATE_LIMIT: '1', RATE_WINDOW_MS: '600000' });
    const cookie = await signIn();
    expect(await statuses(live, [cookie])).toEqual([200]);
    const [reserve, cancel] = (['reserve', 'cancel'] as const).map((name) =>
      jest.spyOn(first().parts.budgets, name),
    ) as [jest.SpiedFunction<TestRelay['parts']['budgets']['reserve']>, jest.SpiedFunction<() => unknown>];
    for (const n of range(3)) {
      const headers = [`X-Request-Id: left-waiting-${n}`];
      const client = keep(openLive({ relay: first(), cookie }, { headers }));
      // Without a place, it would not ask for a slot.
      await until(() => reserve.mock.calls.length > n);
      // Another one may wait for its slot only if no other one does.
      expect(await reserve.mock.results[n]?.value).toMatchObject({ state: 'granted' });
      client.socket.end();
      const line = await first().logLine(({ requestId }) => requestId === `left-waiting-${n}`);
      expect(line).toMatchObject({ outcome: 'client_closed', status: 499 });
      await until(() => cancel.mock.calls.length > n);
    }
    expect(upstream.requests).toHaveLength(1);
  });
});

describeWithRedis('streams counted in Redis:', () => {
  test('a user has one limit of live streams at all instances', async () => {
    await start(true);
    const cookie = await signIn();
    expect(await statuses(live, [cookie])).toEqual([200]);
    // From now on, at the other instance.
    relays.reverse();
    expect(await statuses(live, [cookie], [cookie])).toEqual([200, 429]);
  });

  contract(true);

  test('the keys name neither users nor sessions, and an instance that shuts down gives all places back', async () => {
    await start(true, { RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', MAX_STREAMS_PER_USER: '1' });
    const cookie = await signIn();
    expect(await statuses(send, [cookie])).toEqual([200]);
    await expectFull(cookie);
    const keys = () => redis.command('KEYS', 'bot-relay:streams:*');
    expect(await keys()).toEqual([expect.stringMatching(/^bot-relay:streams:[\w-]{43}$/)]);
    const slots = await redis.command('ZRANGE', 'bot-relay:{budget:acme/helper}:slots', '0', '-1');
    expect(slots).toEqual([expect.stringMatching(/^\d{16} [\w-]{43} [\w-]{36}$/)]);
    for (const relay of relays) {
      opened.splice(opened.indexOf(relay), 1);
      await relay.close();
    }
    expect(await keys()).toEqual([]);
  });

  test('a stream goes on while Redis is away, and a second one is refused', async () => {
    await start(true);
    const cookie = await signIn();
    // To the first instance, whose commands have no short deadline.
    if ((messages + 1) % 2) messages += 1;
    const { client, over } = await send(cookie);
    redis.pause();
    expect(await statuses(send, [cookie])).toEqual([503]);
    await redis.stop();
    upstream.sockets[0]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.waitFor('data: 2');
    await client.waitFor('\r\n0\r\n\r\n');
    await over();
    await redis.start();
    await until(async () => (await send(cookie)).status !== 503, 20);
  });
});

describeWithRedis('leases of places in Redis', () => {
  const MAX = 3;
  /** Leases that no test outlives, renewed all the time. */
  const LONG = { leaseMs: 600_000, renewMs: 20 };
  /** Leases that no test outlives, and that are not renewed after a test. */
  const KEPT = { leaseMs: 600_000, renewMs: 600_000 };
  const UNAVAILABLE = { code: 'session_store_unavailable' };
  let shared: Redis;
  beforeAll(async () => {
    redis = await startRedis();
    shared = await connected(redis.url);
  });
  afterEach(async () => {
    // The instances are closed first: they would write their leases again.
    await closeAll();
    await redis.command('FLUSHALL');
  });
  afterAll(() => shared.close());

  async function instance(url = redis.url, commandTimeoutMs?: number) {
    const one = await connected(url, commandTimeoutMs);
    opened.push(one);
    return one;
  }
  /** An instance whose connection a test can break. */
  async function throughProxy(commandTimeoutMs?: number) {
    const proxy = await faultProxy(redis.url);
    opened.push(proxy);
    return { proxy, through: await instance(proxy.url, commandTimeoutMs) };
  }
  /** Takes this many leases, all of which must be granted. */
  async function take(leases: StreamLeases, count: number, holder = 'holder-a'): Promise<StreamLease[]> {
    const taken = await Promise.all(range(count).map(() => leases.acquire(holder, MAX)));
    expect(taken).not.toContain(undefined);
    return taken as StreamLease[];
  }
  /** Asks until the holder gets one more lease. */
  const untilGranted = (leases: StreamLeases, max = MAX) =>
    eventually(async () => expect(await leases.acquire('holder-a', max)).toBeDefined());
  const keys = async () => (await redis.command('KEYS', '*')) as string[];
  const countOf = (holder: string) => redis.command('ZCARD', `bot-relay:streams:${keyPart(holder)}`);
  /** When the first and the last of all leases expire. */
  async function expiries(): Promise<{ first: number; last: number }> {
    const lua = `local all = {}
      for _, key in ipairs(redis.call('KEYS', '*')) do
        local pairs = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
        for n = 2, #pairs, 2 do all[#all + 1] = pairs[n] end
      end
      return all`;
    const all = ((await redis.command('EVAL', lua, '0')) as string[]).map(Number);
    return { first: Math.min(...all), last: Math.max(...all) };
  }
  async function allRenewed(): Promise<void> {
    const { last } = await expiries();
    await until(async () => (await expiries()).first > last, 20);
  }

  test('expire, and are renewed with one command for each holder, also after SCRIPT FLUSH', async () => {
    const leases = redisStreamLeases(await instance(), LONG);
    await take(leases, MAX);
    await take(leases, MAX, 'holder-b');
    for (const key of await keys()) expect(await redis.command('PTTL', key)).not.toBe(-1);
    await redis.command('SCRIPT', 'FLUSH');
    await allRenewed();
    await redis.command('CONFIG', 'RESETSTAT');
    await allRenewed();
    const stats = String(await redis.command('INFO', 'commandstats'));
    const count = (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+),`).exec(stats)?.[1] ?? 0);
    expect(count('zadd')).toBe(MAX * count('evalsha'));
  });

  test('are free again when their instance does not renew them any more, and those of another stay', async () => {
    const [gone, other] = [await instance(), redisStreamLeases(await instance(), LONG)];
    await take(other, 1);
    await take(redisStreamLeases(gone, { leaseMs: 100, renewMs: 20 }), MAX - 1);
    gone.close();
    for (let n = 0; n < MAX - 1; n += 1) await untilGranted(other);
    expect(await other.acquire('holder-a', MAX)).toBeUndefined();
  });

  test('fail while Redis hangs, and the failed request takes no place afterwards', async () => {
    const { proxy, through } = await throughProxy(200);
    const hold = proxy.hold('server', 'EVALSHA');
    await expect(redisStreamLeases(through, LONG).acquire('holder-a', 1)).rejects.toMatchObject(UNAVAILABLE);
    await hold.begun;
    hold.release();
    await untilGranted(redisStreamLeases(shared, KEPT), 1);
  });

  test('are written again after a restart of Redis that lost them, except those released meanwhile', async () => {
    const leases = redisStreamLeases(await instance(), LONG);
    const [one] = await take(leases, MAX);
    await redis.stop();
    one?.release();
    one?.release();
    // Resolves when the release has failed; the relay uses no leases after it.
    await leases.close();
    await expect(leases.acquire('holder-a', MAX)).rejects.toMatchObject(UNAVAILABLE);
    await redis.start();
    // The next renewal writes them.
    await until(async () => (await keys()).length > 0, 20);
    expect(await countOf('holder-a')).toBe(MAX - 1);
    expect(await leases.acquire('holder-a', MAX)).toBeDefined();
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
    await answering(shared);
  });

  test('are given back before their instance is closed', async () => {
    const { proxy, through } = await throughProxy();
    const leases = redisStreamLeases(through, KEPT);
    const [one] = await take(leases, 1);
    const hold = proxy.hold('server', 'ZREM');
    one?.release();
    let isClosed = false;
    const closed = leases.close().then(() => {
      isClosed = true;
    });
    await hold.begun;
    expect(isClosed).toBe(false);
    hold.release();
    await closed;
    expect(await countOf('holder-a')).toBe(0);
  });

  test('that were released while Redis was away expire, and are not renewed when it is back', async () => {
    const { proxy, through } = await throughProxy();
    const leases = redisStreamLeases(through, { leaseMs: 2_000, renewMs: 20 });
    const [one] = await take(leases, MAX);
    proxy.cut();
    one?.release();
    // In order: the release before it has failed, too.
    await expect(through.onEach((each) => each.ping())).rejects.toMatchObject(UNAVAILABLE);
    proxy.mend();
    await until(async () => (await countOf('holder-a')) === MAX);
    await untilGranted(redisStreamLeases(shared, KEPT));
  });
});
