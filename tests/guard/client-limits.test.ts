import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import { type Call, call, expectProblem } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
const others: TestRelay[] = [];
async function start(environment: Record<string, string>) {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: done\n\n')), environment);
}
afterEach(async () => {
  for (const relay of others.splice(0)) await relay.close();
  await pair.close();
});
afterAll(() => stopRedis());

const JSON_TYPE = { 'Content-Type': 'application/json' };
const get = (path: string, headers: Call['headers'] = {}, port = pair.relay.port) =>
  call(port, path, { headers });
/** Sends a message of a session. */
const send = (cookie = pair.cookie, headers: Call['headers'] = {}, port = pair.relay.port) =>
  call(port, BOT_PATH, {
    method: 'POST',
    body: MESSAGE,
    headers: { ...JSON_TYPE, Cookie: cookie, ...headers },
  });
/** Sends this many requests for a path that does not exist. */
async function sendMany(times: number, headers: (n: number) => Call['headers'] = () => ({})) {
  for (let n = 0; n < times; n += 1) expect((await get('/nothing', headers(n))).status).toBe(404);
}

/** Tests for both stores of counts; `environment` selects the store. */
function contract(environment: () => Promise<Record<string, string>>): void {
  const limited = async (limits: Record<string, string>) => start({ ...(await environment()), ...limits });

  test('refuse every request of an address that sends too many', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '5' });
    // The sign-in was the first request.
    await sendMany(3);
    expect((await send()).status).toBe(200);
    const refused = await get('/nothing');
    expectProblem(refused, 429, 'too_many_attempts');
    const seconds = Number(refused.headers['retry-after']);
    expect(seconds).toBeGreaterThanOrEqual(1);
    expect(seconds).toBeLessThanOrEqual(60);
    expect(refused.headers).not.toHaveProperty('ratelimit');
    expect(refused.headers).not.toHaveProperty('ratelimit-policy');
    const login = { method: 'POST', headers: JSON_TYPE, body: JSON.stringify(USER) };
    for (const answer of [
      await send(),
      await get('/auth/session'),
      await call(pair.relay.port, '/auth/login', login),
    ])
      expectProblem(answer, 429, 'too_many_attempts');
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('do not count probes', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '2' });
    for (let n = 0; n < 10; n += 1) {
      expect((await get('/healthz')).status).toBe(200);
      expect((await get('/readyz')).status).toBe(200);
    }
    await sendMany(1);
    expectProblem(await get('/nothing'), 429, 'too_many_attempts');
    expect((await get('/healthz')).status).toBe(200);
    expect((await get('/readyz')).status).toBe(200);
  });

  test('log the route of a refused request', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '2' });
    expect((await get('/auth/session', { Cookie: pair.cookie })).status).toBe(200);
    expect((await get('/auth/session', { Cookie: pair.cookie })).status).toBe(429);
    const { route } = await pair.relay.logLine(({ outcome }) => outcome === 'too_many_attempts');
    expect(route).toBe('/auth/session');
  });

  test('keep a client over its limit away from the session store', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '3' });
    let reads = 0;
    const { sessions } = pair.relay;
    const read = sessions.get.bind(sessions);
    sessions.get = (key) => {
      reads += 1;
      return read(key);
    };
    for (let n = 0; n < 2; n += 1)
      expect((await get('/auth/session', { Cookie: pair.cookie })).status).toBe(200);
    expect(reads).toBe(2);
    for (let n = 0; n < 5; n += 1) {
      expect((await get('/auth/session', { Cookie: pair.cookie })).status).toBe(429);
    }
    expect(reads).toBe(2);
  });

  test('refuse a session that sends too many requests, from all addresses, and no other session of its user', async () => {
    await limited({ CLIENT_LIMIT_PER_SESSION: '3', TRUST_PROXY: '1' });
    const from = (n: number) => ({ 'X-Forwarded-For': `192.0.2.${n}` });
    expect((await send(pair.cookie, from(1))).status).toBe(200);
    expect((await get('/auth/session', { Cookie: pair.cookie, ...from(2) })).status).toBe(200);
    expect((await send(pair.cookie, from(3))).status).toBe(200);
    expectProblem(await send(pair.cookie, from(4)), 429, 'too_many_attempts');
    expectProblem(await get('/auth/session', { Cookie: pair.cookie, ...from(5) }), 429, 'too_many_attempts');
    expect(pair.upstream.requests).toHaveLength(2);
    expect((await send(await pair.relay.signIn())).status).toBe(200);
    // A refused client can still sign out.
    const logout = { method: 'POST', headers: { Cookie: pair.cookie } };
    expect((await call(pair.relay.port, '/auth/logout', logout)).status).toBe(204);
  });

  test('hold for an address also with new sessions', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '6', CLIENT_LIMIT_PER_SESSION: '2' });
    const second = await pair.relay.signIn();
    const third = await pair.relay.signIn();
    const statuses: number[] = [];
    for (const cookie of [pair.cookie, second, third, third]) statuses.push((await send(cookie)).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
  });

  test('hold for an address also with an untrusted X-Forwarded-For', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '5' });
    await sendMany(4, (n) => ({ 'X-Forwarded-For': `192.0.2.${n}`, Forwarded: `for=192.0.2.${n}` }));
    expectProblem(await get('/nothing', { 'X-Forwarded-For': '192.0.2.99' }), 429, 'too_many_attempts');
  });

  test('hold behind a trusted hop for a whole IPv6 /56, whatever the client wrote into X-Forwarded-For', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '3', TRUST_PROXY: '1' });
    await sendMany(3, (n) => ({ 'X-Forwarded-For': `192.0.2.${n}, 2001:db8:0:aa0${n}::${n + 1}` }));
    const refused = await get('/nothing', { 'X-Forwarded-For': '192.0.2.99, 2001:db8:0:aaff::1' });
    expectProblem(refused, 429, 'too_many_attempts');
    expect((await get('/nothing', { 'X-Forwarded-For': '2001:db8:0:ab00::1' })).status).toBe(404);
  });

  test('are off with 0', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' });
    await sendMany(20);
    expect((await send()).status).toBe(200);
  });
}

describe('the limits on requests, counted in memory', () => {
  contract(async () => ({}));
});

describeWithRedis('the limits on requests, counted in Redis', () => {
  let redis: RedisServer;
  const onRedis = async (environment: Record<string, string> = {}) => {
    redis = await startRedis();
    return { REDIS_URL: redis.url, ...environment };
  };

  contract(onRedis);

  /** Starts another relay on the same Redis. */
  async function another(environment: Record<string, string>): Promise<TestRelay> {
    const relay = await startRelay(pair.upstream.url, environment);
    others.push(relay);
    return relay;
  }

  test('are shared by all instances', async () => {
    const environment = await onRedis({ CLIENT_LIMIT_PER_ADDRESS: '8', CLIENT_LIMIT_PER_SESSION: '3' });
    await start(environment);
    const { port } = await another(environment);
    expect((await send()).status).toBe(200);
    expect((await send(pair.cookie, {}, port)).status).toBe(200);
    expect((await send()).status).toBe(200);
    expect((await send(pair.cookie, {}, port)).status).toBe(429);
    await sendMany(2);
    expect((await get('/nothing', {}, port)).status).toBe(404);
    expectProblem(await get('/nothing', {}, port), 429, 'too_many_attempts');
  });

  test('work again after SCRIPT FLUSH and after a restart of Redis', async () => {
    await start(await onRedis({ CLIENT_LIMIT_PER_ADDRESS: '4', CLIENT_LIMIT_PER_SESSION: '1000' }));
    await sendMany(2);
    await redis.command('SCRIPT', 'FLUSH');
    await sendMany(1);
    expect((await get('/nothing')).status).toBe(429);
    await redis.stop();
    await redis.start();
    await until(async () => (await get('/nothing')).status !== 503, 20);
    // The new Redis has counted only the last request.
    await sendMany(3);
    expect((await get('/nothing')).status).toBe(429);
  });

  test('answer 503 while Redis is away, but not to probes', async () => {
    const wire = await faultProxy((await onRedis()).REDIS_URL);
    await start({ REDIS_URL: wire.url });
    wire.cut();
    const answers = await Promise.all([get('/nothing'), send(), get('/auth/session')]);
    for (const answer of answers) {
      expectProblem(answer, 503, 'session_store_unavailable');
      expect(answer.headers['retry-after']).toBe('1');
    }
    expect((await get('/healthz')).status).toBe(200);
    wire.mend();
    await until(async () => (await send()).status === 200, 50);
    wire.close();
  });

  test('answer 503 while Redis takes no writes', async () => {
    await start(await onRedis());
    await redis.command('REPLICAOF', '127.0.0.1', '1');
    expectProblem(await send(), 503, 'session_store_unavailable');
    await redis.command('REPLICAOF', 'NO', 'ONE');
    expect((await send()).status).toBe(200);
  });

  test('need one round trip each for a message', async () => {
    const { REDIS_URL } = await onRedis();
    const wire = await faultProxy(REDIS_URL);
    await start({ REDIS_URL: wire.url });
    await send();
    const sent = wire.record();
    await send();
    wire.close();
    const text = sent.map((one) => (one.by === 'client' ? one.text : '')).join('');
    const commands = text.split(/(?=\*\d+\r\n\$)/).filter((command) => command.includes('bot-relay:limit:'));
    // One by address and one by session.
    expect(commands.map((command) => command.split('\r\n')[2])).toEqual(['EVALSHA', 'EVALSHA']);
  });

  test('use keys that contain no address and no session, and that expire', async () => {
    await start(await onRedis());
    await send();
    const keys = (await redis.command('KEYS', 'bot-relay:limit:*')) as string[];
    expect(keys.map((key) => key.split(':')[2]).sort()).toEqual(['address', 'session']);
    for (const key of keys) {
      expect(key).toMatch(/^bot-relay:limit:[a-z-]+:[\w-]{43}$/);
      expect(await redis.command('PTTL', key)).toBeGreaterThan(0);
    }
  });
});
