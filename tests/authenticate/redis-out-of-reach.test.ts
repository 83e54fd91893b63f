import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import { type Answer, call, expectProblem } from '../support/call.ts';
import { type Instances, startInstances } from '../support/instances.ts';
import { LAST_CHUNK } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import type { RedisWire } from '../support/redis-wire.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay, USER } from '../support/relay.ts';

let all: Instances | undefined;
afterEach(async () => {
  await all?.close();
  all = undefined;
  stopRedis();
});

interface Outage {
  begin(redis: RedisServer, wire: RedisWire): unknown;
  end(redis: RedisServer, wire: RedisWire): unknown;
  /** Whether it is such that Redis still answers to a ping. */
  readonly answers?: true;
  /** Whether Redis forgets everything. */
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

async function inUnderASecond(asked: Promise<Answer>): Promise<Answer> {
  const from = performance.now();
  const answer = await asked;
  expect(performance.now() - from).toBeLessThan(1000);
  return answer;
}

async function expectUnavailable(asked: Promise<Answer>) {
  const answer = await inUnderASecond(asked);
  expectProblem(answer, 503, 'session_store_unavailable');
  expect(answer.headers['retry-after']).toBe('1');
  expect(answer.headers).not.toHaveProperty('set-cookie');
}

const checks = ({ status, body }: Answer) => ({ status, ...JSON.parse(body) });
const READY = { status: 'ready', checks: { accepting: 'ok', redis: 'ok' } };
const NOT_READY = { status: 'not ready', checks: { accepting: 'ok', redis: 'failed' } };

describeWithRedis('a relay whose Redis is', () => {
  test.each(OUTAGES)(
    '%s refuses what needs a session in under a second, lets streams go on and recovers by itself (G12)',
    async (_how, { begin, end, answers, forgets }) => {
      all = await startInstances({ count: 1, shared: true, wired: true });
      const [relay, redis, wire] = [
        all.relays[0] as TestRelay,
        all.redis as RedisServer,
        all.wire as RedisWire,
      ];
      const cookie = await relay.signIn();
      const [stream, other] = [await all.stream(0, cookie), await all.stream(0, cookie)];
      const credentials = JSON.stringify({ username: USER.name, password: USER.password });
      expect(checks(await all.get(0, '/readyz'))).toEqual({ ...READY, status: 'ready' });

      await begin(redis, wire);
      const sentBefore = all.upstream.requests.length;
      // At first nobody knows; later the connection has been given up.
      for (const wait of [0, 2500]) {
        await sleep(wait);
        await expectUnavailable(post(relay, BOT_PATH, cookie, MESSAGE));
        await expectUnavailable(post(relay, '/auth/login', '', credentials));
        await expectUnavailable(post(relay, '/auth/logout', cookie, ''));
        await expectUnavailable(post(relay, '/auth/logout-all', cookie, ''));
        if (!answers) await expectUnavailable(all.get(0, '/auth/session', cookie));
        const probe = await inUnderASecond(all.get(0, '/readyz'));
        expect([probe.status, JSON.parse(probe.body)]).toEqual(answers ? [200, READY] : [503, NOT_READY]);
        expect((await all.get(0, '/healthz')).status).toBe(200);
      }
      // Nobody without a session is let in either, and nobody is without limits.
      await expectUnavailable(post(relay, BOT_PATH, '', MESSAGE));
      expect(all.upstream.requests).toHaveLength(sentBefore);
      stream.event('data: during\n\n');
      await stream.client.waitFor('data: during\n\n');
      stream.upstream.write(LAST_CHUNK);
      expect(await stream.over()).toMatchObject({ complete: true, code: undefined });

      await end(redis, wire);
      while ((await all.get(0, '/readyz')).status !== 200) await sleep(20);
      const next = forgets ? await relay.signIn() : cookie;
      let answer = await all.get(0, '/auth/session', next);
      // What was on its way through a slow wire still comes late.
      while (answer.status === 503) answer = await all.get(0, '/auth/session', next);
      expect(answer.status).toBe(200);
      other.event('data: after\n\n');
      await other.client.waitFor('data: after\n\n');
      const again = await all.stream(0, next);
      expect(again.client.text()).toContain('data: begun');
      const faults = relay.logs.filter(({ level, msg }) => level === 'error' && msg !== 'redis lost');
      expect(faults).toEqual([]);
    },
  );

  test('not there yet is listening but not ready, and becomes ready with it', async () => {
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
    while ((await probe()).status !== 200) await sleep(20);
    expect(checks(await probe())).toMatchObject({ checks: READY.checks });
    expect(await relay.signIn()).toMatch(/^bot_relay_session=/);
    await relay.close();
  });

  test('well is asked for one answer by a probe, and for nothing else (O8)', async () => {
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
