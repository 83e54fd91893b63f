import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { SignJWT, UnsecuredJWT } from 'jose';
import { readiness } from '../../src/routes/probes.ts';
import { secret } from '../../src/secret.ts';
import { PROBE_HEADER, PROBE_PATH } from '../../src/watch/check-probe.ts';
import { FAILURES, type ProbeAsk, probeTokens } from '../../src/watch/probe-tokens.ts';
import { type Call, call, expectProblem } from '../harness/clients/call.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { CANARY, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

const tokens = probeTokens([secret(CANARY.sessionSecret)]);
const tokenFor = async (ask: ProbeAsk['ask'] = 'client') => (await tokens.sign({ ask })).token;

let upstream: RawUpstream;
let relays: TestRelay[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const relay of relays.splice(0)) await relay.close();
  await upstream.close();
  stopRedis();
});

async function start(environment: Record<string, string> = {}, count = 1): Promise<TestRelay> {
  upstream = await startRawUpstream(() => {});
  relays = [];
  for (let i = 0; i < count; i++) relays.push(await startRelay(upstream.url, environment));
  return relays[0] as TestRelay;
}

const probe = (
  { port }: TestRelay,
  token: string,
  { path = PROBE_PATH, headers, ...rest }: Call & { path?: string } = {},
) => call(port, path, { method: 'POST', ...rest, headers: { [PROBE_HEADER]: token, ...headers } });

async function arrivals(relay: TestRelay, of: string): Promise<unknown> {
  const { token } = await tokens.sign({ ask: 'arrivals', of });
  return JSON.parse((await probe(relay, token)).body);
}

describe('the probes', () => {
  test('answer that the process lives, and that it is ready while it takes requests', async () => {
    const relay = await start();
    const probe = async (path: string) => {
      const { status, body } = await call(relay.port, path);
      return { answered: status, ...JSON.parse(body) };
    };
    expect(await probe('/healthz')).toEqual({ answered: 200, status: 'ok' });
    expect(await probe('/readyz')).toEqual({
      answered: 200,
      status: 'ready',
      checks: { accepting: 'ok' },
    });
    relay.parts.lifecycle.enter('draining');
    expect(await probe('/healthz')).toEqual({ answered: 200, status: 'ok' });
    expect(await probe('/readyz')).toEqual({
      answered: 503,
      status: 'not ready',
      checks: { accepting: 'failed' },
    });
  });

  test('answer ready only while every check is ok, and name each check', async () => {
    await start();
    let storeHolds = true;
    const checks = { accepting: async () => true, store: async () => storeHolds };
    expect(await readiness(checks)).toEqual({ ready: true, results: { accepting: 'ok', store: 'ok' } });
    storeHolds = false;
    expect(await readiness(checks)).toEqual({ ready: false, results: { accepting: 'ok', store: 'failed' } });
  });
});

describe('a probe of the check', () => {
  test('gets the client address that the relay sees, without use of sessions, bots or keys', async () => {
    const relay = await start({ TRUST_PROXY: '1' });
    const headers = {
      'X-Forwarded-For': '198.51.100.1, 203.0.113.7:4711',
      Cookie: 'bot_relay_session=x.y',
    };
    const answer = await probe(relay, await tokenFor(), { headers });
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.body)).toEqual({
      address: '203.0.113.7',
      forwarded: ['198.51.100.1', '203.0.113.7:4711'],
    });
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(await relay.sessionUses()).toBe(0);
    expect(upstream.sockets).toHaveLength(0);
    // Logged as a probe: only at debug level, and in no metric.
    expect(relay.logs.filter(({ msg }) => msg === 'request')).toEqual([
      expect.objectContaining({ level: 'debug', route: PROBE_PATH, status: 200, outcome: 'ok' }),
    ]);
    expect(await relay.metricsText()).not.toContain(PROBE_PATH);
  });

  test('is answered once: a repeated probe is answered exactly like an unknown path', async () => {
    const relay = await start();
    const token = await tokenFor();
    expect((await probe(relay, token)).status).toBe(200);
    const [again, unknown] = [
      await probe(relay, token),
      await probe(relay, token, { path: '/generic/nothing' }),
    ];
    const { requestId: _, ...body } = expectProblem(again, 404, 'not_found');
    expect(expectProblem(unknown, 404, 'not_found')).toMatchObject(body);
    expect(Object.keys(again.headers)).toEqual(Object.keys(unknown.headers));
    const lines = relay.logs.filter(({ status }) => status === 404);
    expect(lines.map(({ level, route, outcome }) => [level, route, outcome])).toEqual(
      Array(2).fill(['info', 'none', 'not_found']),
    );
  });

  test('is valid for a minute, also if clocks differ a little, and not longer', async () => {
    const relay = await start();
    const at = async (seconds: number) => {
      const now = Date.now();
      const clock = jest.spyOn(Date, 'now').mockReturnValue(now + seconds * 1000);
      const token = await tokenFor();
      clock.mockRestore();
      return (await probe(relay, token)).status;
    };
    expect([await at(-55), await at(0), await at(25)]).toEqual([200, 200, 200]);
    expect([await at(-61), await at(35), await at(3600)]).toEqual([404, 404, 404]);
  });

  test('is accepted with each of SESSION_SECRETS', async () => {
    const relay = await start({ SESSION_SECRETS: `${'0123456789abcdef'.repeat(3)},${CANARY.sessionSecret}` });
    expect((await probe(relay, await tokenFor())).status).toBe(200);
  });

  test.each<[string, (token: string) => string | Promise<string>]>([
    ['no token', () => ''],
    ['nonsense', () => 'x'.repeat(8_000)],
    ['a changed token', (token) => token.replace(/^[^.]*\.[^.]*/, (text) => `${text}A`)],
    [
      'a token of another secret',
      async () => (await probeTokens([secret('another secret')]).sign({ ask: 'client' })).token,
    ],
    [
      'a token that the secret itself has signed',
      () =>
        new SignJWT({ ask: 'client', jti: randomUUID() })
          .setProtectedHeader({ alg: 'HS256' })
          .setExpirationTime('50s')
          .sign(new TextEncoder().encode(CANARY.sessionSecret)),
    ],
    [
      'an unsigned token',
      () => new UnsecuredJWT({ ask: 'client', jti: randomUUID() }).setExpirationTime('50s').encode(),
    ],
  ])('is not accepted with %s', async (_what, made) => {
    const relay = await start();
    const token = await made(await tokenFor());
    expectProblem(await probe(relay, token), 404, 'not_found');
  });

  test.each<[string, Call & { path?: string }]>([
    ['GET', { method: 'GET' }],
    ['OPTIONS', { method: 'OPTIONS' }],
    ['a body', { body: '{}' }],
    ['a body in chunks', { headers: { 'Transfer-Encoding': 'chunked' }, body: '{}' }],
    ['another path', { path: `${PROBE_PATH}/` }],
  ])('is not accepted with %s, and stays valid', async (_what, request) => {
    const relay = await start();
    const token = await tokenFor();
    expectProblem(await probe(relay, token, request), 404, 'not_found');
    expect((await probe(relay, token)).status).toBe(200);
  });

  test.each(FAILURES)('fails as it asks for (%s), once, and its arrivals are counted', async (ask) => {
    const relay = await start({ BASE_PATH: '/chat-api' });
    const path = `/chat-api${PROBE_PATH}`;
    const { token, jti } = await tokens.sign({ ask });
    const failed = await probe(relay, token, { path }).then(
      ({ status, body }) => `${status}${body}`,
      ({ code }: NodeJS.ErrnoException) => code,
    );
    expect(failed).toBe(ask === 'cut' ? 'ECONNRESET' : ask);
    const seen = async () => {
      const question = await tokens.sign({ ask: 'arrivals', of: jti });
      return JSON.parse((await probe(relay, question.token, { path })).body) as unknown;
    };
    expect(await seen()).toEqual({ arrivals: 1, shared: false });
    expectProblem(await probe(relay, token, { path }), 404, 'not_found');
    expect(await seen()).toEqual({ arrivals: 2, shared: false });
  });

  test('is limited in number, and by the limit of its address', async () => {
    const relay = await start({ CLIENT_LIMIT_PER_ADDRESS: '1100' });
    const signed = await Promise.all(Array.from({ length: 1_001 }, () => tokenFor()));
    const statuses: number[] = [];
    for (let i = 0; i < signed.length; i += 50) {
      const some = await Promise.all(signed.slice(i, i + 50).map((token) => probe(relay, token)));
      statuses.push(...some.map(({ status }) => status));
    }
    expect(statuses).toEqual([...Array(1_000).fill(200), 404]);
    for (let i = 0; i < 99; i++) await probe(relay, '');
    expectProblem(await probe(relay, ''), 429, 'too_many_attempts');
  });
});

describeWithRedis('a probe of the check, with Redis', () => {
  test('is answered once by all instances together, and its arrivals are counted at all of them', async () => {
    const { url } = await startRedis();
    const here = await start({ REDIS_URL: url }, 2);
    const there = relays[1] as TestRelay;
    const { token, jti } = await tokens.sign({ ask: 'client' });
    const both = await Promise.all([probe(here, token), probe(there, token)]);
    expect(both.map(({ status }) => status).sort()).toEqual([200, 404]);
    expect(await arrivals(there, jti)).toEqual({ arrivals: 2, shared: true });
    expect(await arrivals(here, randomUUID())).toEqual({ arrivals: 0, shared: true });
  });

  test('is refused with 503 while Redis is away, and its keys in Redis expire', async () => {
    const redis = await startRedis();
    const relay = await start({ REDIS_URL: redis.url, CLIENT_LIMIT_PER_ADDRESS: '0' });
    await probe(relay, await tokenFor());
    const keys = (await redis.command('KEYS', 'bot-relay:limit:check-probe:*')) as string[];
    expect(keys).toHaveLength(2);
    for (const key of keys) {
      const ms = Number(await redis.command('PTTL', key));
      expect(ms > 0 && ms <= 180_000).toBe(true);
    }
    await redis.stop();
    expectProblem(await probe(relay, await tokenFor()), 503, 'session_store_unavailable');
  });
});
