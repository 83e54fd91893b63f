import { afterAll, afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Request } from 'express';
import type { Store } from 'express-rate-limit';
import { clientAddress } from '../../src/http/client-address.ts';
import { createLogger } from '../../src/logger.ts';
import { createRunOnce } from '../../src/pace/arrivals.ts';
import { nameHolders } from '../../src/pace/holders.ts';
import { redisCounts } from '../../src/pace/redis-counts.ts';
import { type Counts, memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { type Call, call, expectProblem } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import {
  answering,
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';
import { BOT_PATH, MESSAGE, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startTestApp } from '../harness/relay/test-app.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let redis: RedisServer;
let pair: RelayAndUpstream;
const opened: { close(): unknown }[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const one of opened.splice(0).reverse()) await one.close();
});
afterAll(() => stopRedis());

async function start(environment: Record<string, string>) {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: done\n\n')), environment);
  opened.push(pair);
}
const get = async (path: string, headers: Call['headers'] = {}, port = pair.relay.port) =>
  call(port, path, { headers });
const session = (headers: Call['headers'] = {}) => get('/auth/session', { Cookie: pair.cookie, ...headers });
const send = (cookie = pair.cookie, headers: Call['headers'] = {}, port = pair.relay.port) =>
  call(port, BOT_PATH, {
    method: 'POST',
    body: MESSAGE,
    headers: { 'Content-Type': 'application/json', Cookie: cookie, ...headers },
  });
const from = (address: string) => ({ 'X-Forwarded-For': address });
/** Sends a request for a path that does not exist from each of these addresses. */
async function sendFrom(...addresses: string[]) {
  for (const address of addresses) expect((await get('/nothing', from(address))).status).toBe(404);
}

/** Tests for both stores of counts; `environment` selects the store. */
function contract(environment: () => Promise<Record<string, string>>): void {
  const limited = async (limits: Record<string, string>) => start({ ...(await environment()), ...limits });

  test('hold for an address with several sessions, and whatever it says of its address, but not for probes', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '6' });
    for (let n = 0; n < 10; n += 1)
      expect([(await get('/healthz')).status, (await get('/readyz')).status]).toEqual([200, 200]);
    // The sign-ins count, too.
    await sendFrom('192.0.2.1', '192.0.2.2');
    expect((await send()).status).toBe(200);
    expect((await send(await pair.relay.signIn())).status).toBe(200);
    const uses = await pair.relay.sessionUses();
    const refused = await get('/nothing', { ...from('192.0.2.3'), Forwarded: 'for=192.0.2.3' });
    expectProblem(refused, 429, 'too_many_attempts', { retryable: 'new message' });
    expect(Number(refused.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(60);
    expect((await session()).status).toBe(429);
    expect(await pair.relay.sessionUses()).toBe(uses);
    expect((await send()).status).toBe(429);
    const line = await pair.relay.logLine(({ route }) => route === '/auth/session');
    expect(line).toMatchObject({ outcome: 'too_many_attempts' });
    expect(pair.upstream.requests).toHaveLength(2);
    expect((await get('/readyz')).status).toBe(200);
  });

  test('hold for a session from all addresses, and for no other session of its user', async () => {
    await limited({ CLIENT_LIMIT_PER_SESSION: '3', TRUST_PROXY: '1' });
    expect((await send(pair.cookie, from('192.0.2.1'))).status).toBe(200);
    expect((await session(from('192.0.2.2'))).status).toBe(200);
    expect((await send(pair.cookie, from('192.0.2.3'))).status).toBe(200);
    expectProblem(await send(pair.cookie, from('192.0.2.4')), 429, 'too_many_attempts');
    expectProblem(await session(from('192.0.2.5')), 429, 'too_many_attempts');
    expect(pair.upstream.requests).toHaveLength(2);
    expect((await send(await pair.relay.signIn())).status).toBe(200);
    // A refused client can still sign out.
    const logout = { method: 'POST', headers: { Cookie: pair.cookie } };
    expect((await call(pair.relay.port, '/auth/logout', logout)).status).toBe(204);
  });
}

describe('the limits on requests, counted in memory,', () => {
  contract(async () => ({}));

  test('hold behind a trusted hop for a whole IPv6 /56, whatever the client wrote before it', async () => {
    await start({ CLIENT_LIMIT_PER_ADDRESS: '2', TRUST_PROXY: '1' });
    await sendFrom('192.0.2.1, 2001:db8:0:aa01::1', '192.0.2.2, 2001:db8:0:aa02::3');
    const refused = await get('/nothing', from('192.0.2.99, 2001:db8:0:aaff::1'));
    expectProblem(refused, 429, 'too_many_attempts');
    await sendFrom('2001:db8:0:ab00::1');
  });

  test('are off with 0', async () => {
    await start({ CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' });
    for (let n = 0; n < 20; n += 1) expect((await session()).status).toBe(200);
  });
});

describeWithRedis('the limits on requests, counted in Redis,', () => {
  const onRedis = async () => {
    redis = await startRedis();
    return { REDIS_URL: redis.url };
  };
  contract(onRedis);

  test('are shared by all instances', async () => {
    const limits = { CLIENT_LIMIT_PER_ADDRESS: '6', CLIENT_LIMIT_PER_SESSION: '3' };
    const environment = { ...(await onRedis()), ...limits };
    await start(environment);
    const other = await startRelay(pair.upstream.url, environment);
    opened.push(other);
    const statuses: number[] = [];
    for (const port of [pair.relay.port, other.port, pair.relay.port, other.port])
      statuses.push((await send(pair.cookie, {}, port)).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect((await get('/nothing', {}, other.port)).status).toBe(404);
    expectProblem(await get('/nothing', {}, other.port), 429, 'too_many_attempts');
  });

  test('answer 503 while Redis is away or takes no writes, but not to probes', async () => {
    const wire = await faultProxy((await onRedis()).REDIS_URL);
    opened.push(wire);
    await start({ REDIS_URL: wire.url });
    await redis.command('REPLICAOF', '127.0.0.1', '1');
    expectProblem(await send(), 503, 'session_store_unavailable', { retryable: 'same message' });
    await redis.command('REPLICAOF', 'NO', 'ONE');
    expect((await send()).status).toBe(200);
    wire.cut();
    for (const answer of await Promise.all([get('/nothing'), send(), session()])) {
      expect([answer.status, JSON.parse(answer.body).code]).toEqual([503, 'session_store_unavailable']);
      expect(answer.headers['retry-after']).toBe('1');
    }
    expect((await get('/healthz')).status).toBe(200);
    wire.mend();
    await until(async () => (await send()).status === 200, 50);
  });

  test('need one round trip each for a message, under keys that name nobody and expire', async () => {
    const wire = await faultProxy((await onRedis()).REDIS_URL);
    opened.push(wire);
    await start({ REDIS_URL: wire.url });
    await send();
    const sent = wire.record();
    await send();
    wire.close();
    const text = sent.map((one) => (one.by === 'client' ? one.text : '')).join('');
    const commands = text.split(/(?=\*\d+\r\n\$)/).filter((command) => command.includes('bot-relay:limit:'));
    // One by address and one by session.
    expect(commands.map((command) => command.split('\r\n')[2])).toEqual(['EVALSHA', 'EVALSHA']);
    const keys = (await redis.command('KEYS', 'bot-relay:limit:*')) as string[];
    expect(keys.map((key) => key.split(':')[2]).sort()).toEqual(['address', 'session']);
    for (const key of keys) {
      expect(key).toMatch(/^bot-relay:limit:[a-z-]+:[\w-]{43}$/);
      expect(await redis.command('PTTL', key)).toBeGreaterThan(0);
    }
  });
});

const WINDOW_MS = 60_000;
const noWork = async () => {};

/** Starts an app that counts each request by its path; returns what asks it for the status. */
async function limitedApp(counts: Counts, limit: number, windowMs = WINDOW_MS) {
  const pass = requestLimits(
    counts,
    createLogger('silent'),
  )({ name: 'test', detail: 'No.', limit, windowMs });
  const app = await startTestApp((on) => {
    on.get('/:key', async (req, res) => {
      await pass(req, res, req.params.key);
      res.end();
    });
  });
  opened.push(app);
  return async (path: string) => (await call(app.port, path)).status;
}

/** Tests for both stores. */
function countsContract(counts: () => Counts): void {
  test('pass as many requests of each key as may, also of those that come at once', async () => {
    const ask = await limitedApp(counts(), 2);
    const statuses = await Promise.all(Array.from({ length: 10 }, () => ask('/one')));
    expect(statuses.sort()).toEqual([200, 200, ...Array(8).fill(429)]);
    expect(await ask('/two')).toBe(200);
  });

  test('end with their window, which refused requests do not make longer', async () => {
    const ask = await limitedApp(counts(), 1, 200);
    await until(async () => (await ask('/one')) === 429);
    await until(async () => (await ask('/one')) === 200);
  });

  test('have work done once for each text, and again if it has failed', async () => {
    const once = createRunOnce(counts(), 'test', WINDOW_MS);
    const work = jest.fn(noWork);
    expect([await once('a', work), await once('a', work), await once('b', work)]).toEqual([
      true,
      false,
      true,
    ]);
    expect(work).toHaveBeenCalledTimes(2);
    await expect(once('c', () => Promise.reject(new Error('away')))).rejects.toThrow('away');
    for (const text of ['c', '', ' ', 'a:b', 'A', '*', '\n', 'ü', 'u\u0308'])
      expect([text, await once(text, noWork), await once(text, noWork)]).toEqual([text, true, false]);
  });
}

describe('counts in memory', () => {
  countsContract(() => memoryCounts);

  test('have work done again after its window, and not before', async () => {
    jest.useFakeTimers();
    const stores: Store[] = [];
    const keep: Counts = (name) => stores[stores.push(memoryCounts(name)) - 1] as Store;
    const once = createRunOnce(keep, 'test', WINDOW_MS);
    await once('a', noWork);
    jest.advanceTimersByTime(WINDOW_MS - 1);
    expect(await once('a', noWork)).toBe(false);
    jest.advanceTimersByTime(WINDOW_MS + 1);
    expect(await once('a', noWork)).toBe(true);
    jest.useRealTimers();
    for (const store of stores) store.shutdown?.();
  });
});

describeWithRedis('counts in Redis', () => {
  let client: Redis;
  beforeEach(async () => {
    redis = await startRedis();
    client = await connected(redis.url);
    opened.push(client);
  });
  countsContract(() => redisCounts(client));

  test('have work done once for all instances, and not while Redis is away', async () => {
    const other = await connected(redis.url);
    opened.push(other);
    const [here, there] = [client, other].map((one) => createRunOnce(redisCounts(one), 'test', WINDOW_MS));
    expect([await here?.('a', noWork), await there?.('a', noWork)]).toEqual([true, false]);
    other.close();
    const work = jest.fn(noWork);
    await expect(there?.('b', work)).rejects.toMatchObject({ code: 'session_store_unavailable' });
    expect(work).not.toHaveBeenCalled();
  });

  test('begin where Redis starts later than the relay, go on after SCRIPT FLUSH, and begin again after a restart', async () => {
    await redis.stop();
    const late = openRedis({ url: secret(redis.url), logger: createLogger('silent') });
    opened.push(late);
    const ask = await limitedApp(redisCounts(late), 2);
    expect(await ask('/one')).toBe(503);
    await redis.start();
    await answering(late);
    expect(await ask('/one')).toBe(200);
    await redis.command('SCRIPT', 'FLUSH');
    expect([await ask('/one'), await ask('/one')]).toEqual([200, 429]);
    await redis.stop();
    expect(await ask('/one')).toBe(503);
    await redis.start();
    await answering(late);
    expect([await ask('/one'), await ask('/one'), await ask('/one')]).toEqual([200, 200, 429]);
  });
});

describe('the address that a request counts for', () => {
  const of = (ip: string | undefined) =>
    clientAddress({ ip, socket: { remoteAddress: '10.0.0.1' } } as Request);

  test.each([
    ['192.0.2.1', '192.0.2.1'],
    ['192.0.2.1:50123', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['[::ffff:192.0.2.1]:50123', '192.0.2.1'],
    ...['unknown', '300.0.2.1', '192.0.2.01', '<script>', '', undefined].map(
      (ip) => [ip, '10.0.0.1'] as const,
    ),
  ])('is for %j %s', (ip, expected) => {
    expect(of(ip)).toBe(expected);
    expect(clientAddress({ ip: undefined, socket: {} } as Request)).toBe('unknown');
  });

  test('is the same for all addresses of an IPv6 /56, in any notation', () => {
    const same = [
      ...['2001:db8:0:aa00::1', '2001:db8:0:aaff:ffff:ffff:ffff:ffff', '2001:0DB8:0000:AA12:0:0:0:1'],
      ...['[2001:db8:0:aa01::1]', '[2001:db8:0:aa01::1]:50123', '2001:db8:0:aa01::1%eth0'],
    ];
    expect(new Set(same.map(of)).size).toBe(1);
    expect(of('2001:db8:0:ab00::1')).not.toBe(of(same[0]));
  });

  test.each<[string, number | string[] | false, string, string]>([
    ['no proxy is trusted', false, '203.0.113.1', '127.0.0.1'],
    ['one hop is trusted, and the client wrote the rest', 1, '203.0.113.1, 192.0.2.7', '192.0.2.7'],
    ['two hops are trusted', 2, '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    ['an address is trusted, and claimed', ['127.0.0.1'], '127.0.0.1, 192.0.2.7', '192.0.2.7'],
    ['networks are trusted', ['127.0.0.0/8', '10.0.0.0/8'], '203.0.113.1, 192.0.2.7, 10.0.0.5', '192.0.2.7'],
    ['the caller is not in a trusted network', ['10.0.0.0/8'], '203.0.113.1', '127.0.0.1'],
  ])('is the last one that a trusted hop has seen, where %s', async (_who, trust, header, expected) => {
    const stage = await startTestApp((app) => {
      app.set('trust proxy', trust);
      app.get('/', (req, res) => void res.end(clientAddress(req)));
    });
    opened.push(stage);
    expect((await call(stage.port, '/', { headers: from(header) })).body).toBe(expected);
  });

  test.each([
    ['that of the connection if no proxy is trusted', '', (n: number) => `192.0.2.${n}`],
    ['an IPv6 /56 behind a trusted one', '1', (n: number) => `192.0.2.9, 2001:db8:0:aa0${n}::${n + 1}`],
  ])('is for failed sign-ins %s, and how many attempts are left is not told', async (_by, trust, address) => {
    const limits = { LOGIN_MAX_FAILURES_PER_ADDRESS: '5', TRUST_PROXY: trust };
    const relay = await startRelay('http://127.0.0.1:9', limits);
    opened.push(relay);
    const login = (n: number) =>
      call(relay.port, '/auth/login', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', ...from(address(n)) },
        body: JSON.stringify({ username: `user${n}`, password: 'wrong' }),
      });
    for (let n = 0; n < 5; n += 1) expectProblem(await login(n), 401, 'invalid_credentials');
    const refused = await login(5);
    expectProblem(refused, 429, 'too_many_attempts', { retryable: 'new message' });
    expect(Object.keys(refused.headers).filter((name) => name.includes('ratelimit'))).toEqual([]);
  });
});

test('a message counts for a hash of realm and user, and that of a guest for one of its address, too', () => {
  const holders = (realm: string, id: string, address = '192.0.2.1', guests = false) =>
    nameHolders({ realm, guests })(id, () => address);
  const ann = holders('password', 'ann smith');
  expect(ann).toEqual({ user: expect.stringMatching(/^[\w-]{43}$/) });
  expect(holders('password', 'ann smith', '192.0.2.2')).toEqual(ann);
  const others = [holders('password', 'ann'), holders('guest', 'ann smith'), holders('oidc b', 'ann smith')];
  expect(new Set([ann, ...others].map(({ user }) => user)).size).toBe(4);
  const [one, same, other] = ['192.0.2.1', '192.0.2.1', '192.0.2.2'].map((address, n) =>
    holders('guest', `guest:${n}`, address, true),
  );
  expect(one?.address).toMatch(/^[\w-]{43}$/);
  expect([same?.address === one?.address, other?.address === one?.address]).toEqual([true, false]);
  expect(new Set([one, same, other].map((all) => all?.user)).size).toBe(3);
});
