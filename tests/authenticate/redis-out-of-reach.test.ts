import { afterAll, afterEach, expect, test } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import { type Answer, call, expectProblem } from '../support/call.ts';
import { type Instances, startInstances } from '../support/instances.ts';
import { untilReady } from '../support/process.ts';
import { LAST_CHUNK } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import type { RedisProxy } from '../support/redis-proxy.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay, USER } from '../support/relay.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { sleep } from '../support/sleep.ts';

let all: Instances | undefined;
afterEach(async () => {
  await all?.close();
  all = undefined;
});
afterAll(() => stopRedis());

interface Outage {
  begin(redis: RedisServer, wire: RedisProxy): unknown;
  end(redis: RedisServer, wire: RedisProxy): unknown;
  /** Whether Redis still answers a ping. */
  readonly answers?: true;
  /** Whether Redis loses all its data. */
  readonly forgets?: true;
}

const OUTAGES: [string, Outage][] = [
  ['stopped', { begin: (redis) => redis.stop(), end: (redis) => redis.start(), forgets: true }],
  ['paused', { begin: (redis) => redis.pause(), end: (redis) => redis.resume() }],
  ['cut off', { begin: (_, wire) => wire.cut(), end: (_, wire) => wire.mend() }],
  ['slow', { begin: (_, wire) => wire.slowDown(900), end: (_, wire) => wire.slowDown(0) }],
  [
    'read-only',
    {
      begin: (redis) => redis.command('REPLICAOF', '127.0.0.1', '1'),
      end: (redis) => redis.command('REPLICAOF', 'NO', 'ONE'),
      answers: true,
    },
  ],
];

const post = (relay: TestRelay, path: string, cookie: string, body: string) =>
  call(relay.port, path, {
    method: 'POST',
    headers: { Cookie: cookie, 'Content-Type': 'application/json' },
    body,
  });

/** The relay gives Redis half a second; the rest is for a busy machine. */
async function withinASecond(asked: Promise<Answer>): Promise<Answer> {
  const awakeMs = countAwakeMs();
  const answer = await asked;
  expect(awakeMs()).toBeLessThan(1000);
  return answer;
}

async function expectUnavailable(asked: Promise<Answer>) {
  const answer = await withinASecond(asked);
  expectProblem(answer, 503, 'session_store_unavailable');
  expect(answer.headers['retry-after']).toBe('1');
  expect(answer.headers).not.toHaveProperty('set-cookie');
}

const checks = ({ status, body }: Answer) => ({ status, ...JSON.parse(body) });
const READY = { status: 'ready', checks: { accepting: 'ok', redis: 'ok' } };
const NOT_READY = { status: 'not ready', checks: { accepting: 'ok', redis: 'failed' } };

async function expectOutage(all: Instances, { begin, end, answers, forgets }: Outage) {
  const [relay, redis, wire] = [all.relays[0] as TestRelay, all.redis as RedisServer, all.wire as RedisProxy];
  const cookie = await relay.signIn();
  const [stream, other] = [await all.stream(0, cookie), await all.stream(0, cookie)];
  const credentials = JSON.stringify({ username: USER.name, password: USER.password });
  expect(checks(await all.get(0, '/readyz'))).toEqual({ ...READY, status: 'ready' });

  await begin(redis, wire);
  const sentBefore = all.upstream.requests.length;
  // At first the relay has not noticed it; later it has closed the connection.
  for (const wait of [0, 2500]) {
    await sleep(wait);
    await Promise.all([
      expectUnavailable(post(relay, BOT_PATH, cookie, MESSAGE)),
      expectUnavailable(post(relay, '/auth/login', '', credentials)),
      expectUnavailable(post(relay, '/auth/logout', cookie, '')),
      expectUnavailable(post(relay, '/auth/logout-all', cookie, '')),
      answers || expectUnavailable(all.get(0, '/auth/session', cookie)),
    ]);
    const probe = await withinASecond(all.get(0, '/readyz'));
    expect([probe.status, JSON.parse(probe.body)]).toEqual(answers ? [200, READY] : [503, NOT_READY]);
    expect((await all.get(0, '/healthz')).status).toBe(200);
  }
  // A message without a session is not let through either, since its limits cannot be counted.
  await expectUnavailable(post(relay, BOT_PATH, '', MESSAGE));
  expect(all.upstream.requests).toHaveLength(sentBefore);
  stream.event('data: during\n\n');
  await stream.client.waitFor('data: during\n\n');
  stream.upstream.write(LAST_CHUNK);
  expect(await stream.over()).toMatchObject({ complete: true, code: undefined });

  await end(redis, wire);
  await untilReady(relay.port);
  const next = forgets ? await relay.signIn() : cookie;
  let answer = await all.get(0, '/auth/session', next);
  // Requests that were already sent over the slow connection are still answered late.
  while (answer.status === 503) answer = await all.get(0, '/auth/session', next);
  expect(answer.status).toBe(200);
  other.event('data: after\n\n');
  await other.client.waitFor('data: after\n\n');
  const again = await all.stream(0, next);
  expect(again.client.text()).toContain('data: begun');
  const faults = relay.logs.filter(({ level, msg }) => level === 'error' && msg !== 'redis lost');
  expect(faults).toEqual([]);
}

describeWithRedis('a relay whose Redis is', () => {
  testSideBySide(
    OUTAGES.map(([how, outage]) => [
      `${how} answers 503 within a second where a session is needed, continues streams and recovers by itself`,
      async () => {
        const all = await startInstances({ count: 1, shared: true, wired: true });
        try {
          await expectOutage(all, outage);
        } finally {
          await all.close();
        }
      },
    ]),
  );

  test('not started yet listens but is not ready, and becomes ready when Redis starts', async () => {
    const redis = await startRedis();
    await redis.stop();
    const relay = await startRelay('http://127.0.0.1:9', { REDIS_URL: redis.url });
    const probe = () => call(relay.port, '/readyz');
    const answer = await probe();
    expect([answer.status, JSON.parse(answer.body)]).toEqual([503, NOT_READY]);
    expect((await call(relay.port, '/healthz')).status).toBe(200);
    await expectUnavailable(
      post(relay, '/auth/login', '', JSON.stringify({ username: USER.name, password: USER.password })),
    );
    await redis.start();
    await untilReady(relay.port);
    expect(checks(await probe())).toMatchObject({ checks: READY.checks });
    expect(await relay.signIn()).toMatch(/^bot_relay_session=/);
    await relay.close();
  });

  test('healthy sends one PING for each readiness probe, and nothing else', async () => {
    all = await startInstances({ count: 1, shared: true });
    const [relay, redis] = [all.relays[0] as TestRelay, all.redis as RedisServer];
    const cookie = await relay.signIn();
    await redis.command('CONFIG', 'RESETSTAT');
    for (let n = 0; n < 5; n += 1) await all.get(0, '/readyz', cookie);
    for (let n = 0; n < 5; n += 1) await all.get(0, '/healthz', cookie);
    const stats = String(await redis.command('INFO', 'commandstats'));
    const commands = [...stats.matchAll(/cmdstat_([^:]+):calls=(\d+)/g)].map(([, name, calls]) => [
      name,
      Number(calls),
    ]);
    const counted = Object.fromEntries(commands) as Record<string, number>;
    // The connection of this test says hello; the relay's own pings may add one.
    const names = Object.keys(counted).filter((name) => !/^(config|info|hello|client)/.test(name));
    expect(names).toEqual(['ping']);
    expect(counted.ping).toBeGreaterThanOrEqual(5);
    expect(counted.ping).toBeLessThanOrEqual(7);
  });
});
