import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { type Call, call, expectProblem } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
const others: TestRelay[] = [];
async function start(environment: Record<string, string>) {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: done\n\n')), environment);
}
afterEach(async () => {
  jest.restoreAllMocks();
  for (const relay of others.splice(0)) await relay.close();
  await pair.close();
});
afterAll(() => stopRedis());

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
const sendMany = (times: number) => sendFrom(...Array(times).fill('192.0.2.1'));

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
    const refused = await get('/nothing', { ...from('192.0.2.3'), Forwarded: 'for=192.0.2.3' });
    expectProblem(refused, 429, 'too_many_attempts', { retryable: 'new message' });
    expect(Number(refused.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(60);
    expect(pair.upstream.requests).toHaveLength(2);
    expect((await get('/readyz')).status).toBe(200);
  });

  test('keep a client over its limit away from the session store, and its route is logged', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '2' });
    const reads = jest.spyOn(pair.relay.sessions, 'get');
    expect((await session()).status).toBe(200);
    for (let n = 0; n < 3; n += 1) expect((await session()).status).toBe(429);
    expect(reads).toHaveBeenCalledTimes(1);
    const { route } = await pair.relay.logLine(({ outcome }) => outcome === 'too_many_attempts');
    expect(route).toBe('/auth/session');
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

  test('hold behind a trusted hop for a whole IPv6 /56, whatever the client wrote before it', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '2', TRUST_PROXY: '1' });
    await sendFrom('192.0.2.1, 2001:db8:0:aa01::1', '192.0.2.2, 2001:db8:0:aa02::3');
    const refused = await get('/nothing', from('192.0.2.99, 2001:db8:0:aaff::1'));
    expectProblem(refused, 429, 'too_many_attempts');
    await sendFrom('2001:db8:0:ab00::1');
  });

  test('are off with 0', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' });
    await sendMany(20);
    for (let n = 0; n < 20; n += 1) expect((await session()).status).toBe(200);
  });
}

describe('the limits on requests, counted in memory', () => {
  contract(async () => ({}));
});

describeWithRedis('the limits on requests, counted in Redis', () => {
  let redis: RedisServer;
  const onRedis = async () => {
    redis = await startRedis();
    return { REDIS_URL: redis.url };
  };
  contract(onRedis);

  test('are shared by all instances', async () => {
    const limits = { CLIENT_LIMIT_PER_ADDRESS: '8', CLIENT_LIMIT_PER_SESSION: '3' };
    const environment = { ...(await onRedis()), ...limits };
    await start(environment);
    const other = await startRelay(pair.upstream.url, environment);
    others.push(other);
    const ports = [pair.relay.port, other.port];
    const statuses: number[] = [];
    for (const n of [0, 1, 0, 1]) statuses.push((await send(pair.cookie, {}, ports[n])).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
    await sendMany(2);
    expect((await get('/nothing', {}, other.port)).status).toBe(404);
    expectProblem(await get('/nothing', {}, other.port), 429, 'too_many_attempts');
  });

  test('answer 503 while Redis is away or takes no writes, but not to probes', async () => {
    const wire = await faultProxy((await onRedis()).REDIS_URL);
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
    wire.close();
  });

  test('need one round trip each for a message, under keys that name nobody and expire', async () => {
    const wire = await faultProxy((await onRedis()).REDIS_URL);
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
