import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type Call, call, expectProblem } from '../support/call.ts';
import { type Pair, startPair } from '../support/pair.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay, USER } from '../support/relay.ts';

let pair: Pair;
const others: TestRelay[] = [];
async function start(environment: Record<string, string>) {
  pair = await startPair((socket) => socket.write(wholeStream('data: done\n\n')), environment);
}
afterEach(async () => {
  for (const relay of others.splice(0)) await relay.close();
  await pair.close();
  stopRedis();
});

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
/** Asks so often for what is not there. */
async function knock(times: number, headers: (n: number) => Call['headers'] = () => ({})) {
  for (let n = 0; n < times; n += 1) expect((await get('/nothing', headers(n))).status).toBe(404);
}

/** What holds wherever requests are counted; `environment` says where. */
function contract(environment: () => Promise<Record<string, string>>): void {
  const limited = async (limits: Record<string, string>) => start({ ...(await environment()), ...limits });

  test('an address that asks too often is refused, whatever it asks for, until Retry-After', async () => {
    // The sign-in was the first.
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '5', CLIENT_WINDOW_MS: '3000' });
    await knock(3);
    expect((await send()).status).toBe(200);
    const refused = await get('/nothing');
    expectProblem(refused, 429, 'too_many_attempts');
    const seconds = Number(refused.headers['retry-after']);
    expect(seconds).toBeGreaterThanOrEqual(1);
    expect(seconds).toBeLessThanOrEqual(3);
    expect(refused.headers).not.toHaveProperty('ratelimit');
    expect(refused.headers).not.toHaveProperty('ratelimit-policy');
    expectProblem(await send(), 429, 'too_many_attempts');
    expectProblem(await get('/auth/session'), 429, 'too_many_attempts');
    const login = { method: 'POST', headers: JSON_TYPE, body: JSON.stringify(USER) };
    expectProblem(await call(pair.relay.port, '/auth/login', login), 429, 'too_many_attempts');
    expect(pair.upstream.requests).toHaveLength(1);
    // What was refused did not make the wait longer.
    await sleep(seconds * 1000);
    expect((await send()).status).toBe(200);
  });

  test('probes are not counted', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '2' });
    for (let n = 0; n < 10; n += 1) {
      expect((await get('/healthz')).status).toBe(200);
      expect((await get('/readyz')).status).toBe(200);
    }
    await knock(1);
    expectProblem(await get('/nothing'), 429, 'too_many_attempts');
    expect((await get('/healthz')).status).toBe(200);
    expect((await get('/readyz')).status).toBe(200);
  });

  test('a refusal names in the log what was asked for', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '2' });
    expect((await get('/auth/session', { Cookie: pair.cookie })).status).toBe(200);
    expect((await get('/auth/session', { Cookie: pair.cookie })).status).toBe(429);
    const { route } = await pair.relay.logLine(({ outcome }) => outcome === 'too_many_attempts');
    expect(route).toBe('/auth/session');
  });

  test('a client without a session reaches no session store once it is over the limit', async () => {
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

  test('a session that asks too often is refused from all addresses; another of the same user is not', async () => {
    await limited({ CLIENT_LIMIT_PER_SESSION: '3', TRUST_PROXY: '1' });
    const from = (n: number) => ({ 'X-Forwarded-For': `192.0.2.${n}` });
    expect((await send(pair.cookie, from(1))).status).toBe(200);
    expect((await get('/auth/session', { Cookie: pair.cookie, ...from(2) })).status).toBe(200);
    expect((await send(pair.cookie, from(3))).status).toBe(200);
    expectProblem(await send(pair.cookie, from(4)), 429, 'too_many_attempts');
    expectProblem(await get('/auth/session', { Cookie: pair.cookie, ...from(5) }), 429, 'too_many_attempts');
    expect(pair.upstream.requests).toHaveLength(2);
    expect((await send(await pair.relay.signIn())).status).toBe(200);
    // Who is refused can still sign out.
    const logout = { method: 'POST', headers: { Cookie: pair.cookie } };
    expect((await call(pair.relay.port, '/auth/logout', logout)).status).toBe(204);
  });

  test('new sessions are no way around the limit of an address', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '6', CLIENT_LIMIT_PER_SESSION: '2' });
    const second = await pair.relay.signIn();
    const third = await pair.relay.signIn();
    const statuses: number[] = [];
    for (const cookie of [pair.cookie, second, third, third]) statuses.push((await send(cookie)).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
  });

  test('X-Forwarded-For that nobody trusted wrote is no way around it', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '5' });
    await knock(4, (n) => ({ 'X-Forwarded-For': `192.0.2.${n}`, Forwarded: `for=192.0.2.${n}` }));
    expectProblem(await get('/nothing', { 'X-Forwarded-For': '192.0.2.99' }), 429, 'too_many_attempts');
  });

  test('behind a trusted hop neither what the client wrote before it nor an address of the same /56 is', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '3', TRUST_PROXY: '1' });
    await knock(3, (n) => ({ 'X-Forwarded-For': `192.0.2.${n}, 2001:db8:0:aa0${n}::${n + 1}` }));
    const refused = await get('/nothing', { 'X-Forwarded-For': '192.0.2.99, 2001:db8:0:aaff::1' });
    expectProblem(refused, 429, 'too_many_attempts');
    expect((await get('/nothing', { 'X-Forwarded-For': '2001:db8:0:ab00::1' })).status).toBe(404);
  });

  test('0 is no limit', async () => {
    await limited({ CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' });
    await knock(20);
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

  /** One more relay on the same Redis. */
  async function another(environment: Record<string, string>): Promise<TestRelay> {
    const relay = await startRelay(pair.upstream.url, environment);
    others.push(relay);
    return relay;
  }

  test('are those of all instances together', async () => {
    const environment = await onRedis({ CLIENT_LIMIT_PER_ADDRESS: '8', CLIENT_LIMIT_PER_SESSION: '3' });
    await start(environment);
    const { port } = await another(environment);
    expect((await send()).status).toBe(200);
    expect((await send(pair.cookie, {}, port)).status).toBe(200);
    expect((await send()).status).toBe(200);
    expect((await send(pair.cookie, {}, port)).status).toBe(429);
    await knock(2);
    expect((await get('/nothing', {}, port)).status).toBe(404);
    expectProblem(await get('/nothing', {}, port), 429, 'too_many_attempts');
  });

  test('go on by themselves after SCRIPT FLUSH and after a restart of Redis', async () => {
    await start(await onRedis({ CLIENT_LIMIT_PER_ADDRESS: '4', CLIENT_LIMIT_PER_SESSION: '1000' }));
    await knock(2);
    await redis.command('SCRIPT', 'FLUSH');
    await knock(1);
    expect((await get('/nothing')).status).toBe(429);
    await redis.stop();
    await redis.start();
    while ((await get('/nothing')).status === 503) await sleep(20);
    // The new Redis knows of nothing, and of that one request.
    await knock(3);
    expect((await get('/nothing')).status).toBe(429);
  });

  test('let nobody through while Redis is away, in under a second; probes go on', async () => {
    await start(await onRedis());
    redis.pause();
    const from = performance.now();
    const answers = await Promise.all([get('/nothing'), send(), get('/auth/session')]);
    expect(performance.now() - from).toBeLessThan(1000);
    for (const answer of answers) {
      expectProblem(answer, 503, 'session_store_unavailable');
      expect(answer.headers['retry-after']).toBe('1');
    }
    expect((await get('/healthz')).status).toBe(200);
    redis.resume();
    while ((await send()).status !== 200) await sleep(50);
    expect(pair.upstream.requests.length).toBeGreaterThanOrEqual(1);
  });

  test('let nobody through where Redis takes no writes', async () => {
    await start(await onRedis());
    await redis.command('REPLICAOF', '127.0.0.1', '1');
    expectProblem(await send(), 503, 'session_store_unavailable');
    await redis.command('REPLICAOF', 'NO', 'ONE');
    expect((await send()).status).toBe(200);
  });

  test('cost a message one round trip each', async () => {
    await start(await onRedis());
    await send();
    await redis.command('CONFIG', 'RESETSTAT');
    await send();
    await sleep(50);
    const stats = String(await redis.command('INFO', 'commandstats'));
    // One by address and one by session.
    expect(stats).toMatch(/cmdstat_incr:calls=2,/);
    expect(stats).not.toMatch(/cmdstat_(eval|script\|load):/);
  });

  test('show no address and no session to who lists the keys, and leave none for ever', async () => {
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
