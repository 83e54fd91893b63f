import { afterAll, expect, test } from '@jest/globals';
import { type Answer, call, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { eventually, until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { untilReady } from '../harness/relay/process.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { LAST_CHUNK } from '../harness/service/raw-upstream.ts';

afterAll(() => stopRedis());

interface Outage {
  begin(redis: RedisServer, wire: FaultProxy): unknown;
  end(redis: RedisServer, wire: FaultProxy): unknown;
  /** Whether Redis still answers a ping. */
  readonly answers?: true;
  /** Whether the relay loses its connection. */
  readonly loses?: true;
  /** Whether Redis loses all its data. */
  readonly forgets?: true;
}

const OUTAGES: [string, Outage][] = [
  ['stopped', { begin: (redis) => redis.stop(), end: (redis) => redis.start(), loses: true, forgets: true }],
  ['paused', { begin: (redis) => redis.pause(), end: (redis) => redis.resume() }],
  ['cut off', { begin: (_, wire) => wire.cut(), end: (_, wire) => wire.mend(), loses: true }],
  ['slow', { begin: (_, wire) => wire.delay(900), end: (_, wire) => wire.delay(0) }],
  [
    'read-only',
    {
      begin: (redis) => redis.command('REPLICAOF', '127.0.0.1', '1'),
      end: (redis) => redis.command('REPLICAOF', 'NO', 'ONE'),
      answers: true,
    },
  ],
];

const post = ({ port }: { port: number }, path: string, cookie: string, body: string) =>
  call(port, path, {
    method: 'POST',
    headers: { Cookie: cookie, 'Content-Type': 'application/json' },
    body,
  });

const CREDENTIALS = JSON.stringify({ username: USER.name, password: USER.password });

/** So short that the tests do not wait long. A busy machine can exceed it, so what must succeed is tried again. */
const LIMITS = { commandTimeoutMs: 200 };

async function expectUnavailable(asked: Promise<Answer>) {
  const answer = await asked;
  expectProblem(answer, 503, 'session_store_unavailable');
  expect(answer.headers['retry-after']).toBe('1');
  expect(answer.headers).not.toHaveProperty('set-cookie');
}

function expectNotReady({ status, body }: Answer) {
  const probe = { status: 'not ready', checks: { accepting: 'ok', redis: 'failed' } };
  expect([status, JSON.parse(body)]).toEqual([503, probe]);
}

async function expectOutage(all: Instances, { begin, end, answers, loses, forgets }: Outage) {
  const [relay, redis, wire] = [all.relays[0] as TestRelay, all.redis as RedisServer, all.wire as FaultProxy];
  const cookie = await eventually(() => relay.signIn());
  const stream = await eventually(() => all.stream(0, cookie));
  const other = await eventually(() => all.stream(0, cookie));
  await untilReady(relay.port);

  await begin(redis, wire);
  const sentBefore = all.upstream.requests.length;
  // A closed connection is noticed after a moment.
  for (const isNoticed of [false, true]) {
    if (isNoticed && loses) await relay.logLine(({ msg }) => msg === 'redis lost');
    await Promise.all([
      expectUnavailable(post(relay, BOT_PATH, cookie, MESSAGE)),
      expectUnavailable(post(relay, '/auth/login', '', CREDENTIALS)),
      expectUnavailable(post(relay, '/auth/logout', cookie, '')),
      expectUnavailable(post(relay, '/auth/logout-all', cookie, '')),
      answers || expectUnavailable(all.get(0, '/auth/session', cookie)),
    ]);
    if (answers) await untilReady(relay.port);
    else expectNotReady(await all.get(0, '/readyz'));
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
  const next = forgets ? await eventually(() => relay.signIn()) : cookie;
  let answer = await all.get(0, '/auth/session', next);
  // Requests that were already sent over the slow connection are still answered late.
  while (answer.status === 503) answer = await all.get(0, '/auth/session', next);
  expect(isSignedIn(answer)).toBe(true);
  other.event('data: after\n\n');
  await other.client.waitFor('data: after\n\n');
  const again = await eventually(() => all.stream(0, next));
  expect(again.client.text()).toContain('data: begun');
  const faults = relay.logs.filter(({ level, msg }) => level === 'error' && msg !== 'redis lost');
  expect(faults).toEqual([]);
}

/** Redis is paused while probes come. */
async function expectNoticed({ relays, redis, get }: Instances) {
  const [relay] = relays as [TestRelay];
  await untilReady(relay.port);
  redis?.pause();
  const lost = () => relay.logs.find(({ msg }) => msg === 'redis lost');
  await until(async () => {
    await get(0, '/readyz');
    return lost() !== undefined;
  });
  expect(lost()).toMatchObject({ cause: 'TIMEOUT' });
  redis?.resume();
  await untilReady(relay.port);
  expect(await eventually(() => relay.signIn())).toMatch(/^bot_relay_session=/);
}

describeWithRedis('a relay whose Redis is', () => {
  const cases: [string, (all: Instances) => Promise<void>][] = [
    ...OUTAGES.map(([how, outage]): (typeof cases)[number] => [
      `${how} answers 503 where a session is needed, continues streams and recovers by itself`,
      (all) => expectOutage(all, outage),
    ]),
    ['paused while probes come is noticed as lost, and is back when it goes on', expectNoticed],
  ];
  testSideBySide(
    cases.map(([title, expectThat]) => [
      title,
      async () => {
        const all = await startInstances({ count: 1, shared: true, wired: true, limits: LIMITS });
        try {
          await expectThat(all);
        } finally {
          await all.close();
        }
      },
    ]),
  );

  test('not started yet listens but is not ready, and becomes ready when Redis starts', async () => {
    const [redis, port] = [await startRedis(), await freePort()];
    await redis.stop();
    const starting = startRelay('http://127.0.0.1:9', { REDIS_URL: redis.url, PORT: String(port) }, LIMITS);
    expect((await eventually(() => call(port, '/healthz'))).status).toBe(200);
    expectNotReady(await call(port, '/readyz'));
    await expectUnavailable(post({ port }, '/auth/login', '', CREDENTIALS));
    await redis.start();
    await untilReady(port);
    const relay = await starting;
    expect(await eventually(() => relay.signIn())).toMatch(/^bot_relay_session=/);
    await relay.close();
  });

  test('healthy gets a PING for each readiness probe, and nothing else', async () => {
    const all = await startInstances({ count: 1, shared: true });
    const [relay, redis] = [all.relays[0] as TestRelay, all.redis as RedisServer];
    const cookie = await relay.signIn();
    await redis.command('CONFIG', 'RESETSTAT');
    for (let n = 0; n < 5; n += 1) for (const path of ['/readyz', '/healthz']) await all.get(0, path, cookie);
    const stats = String(await redis.command('INFO', 'commandstats'));
    const counted = new Map(
      [...stats.matchAll(/cmdstat_([^:]+):calls=(\d+)/g)].map(([, name, calls]) => [name, calls]),
    );
    // The connection of this test says hello.
    const names = [...counted.keys()].filter((name) => !/^(config|info|hello|client)/.test(String(name)));
    expect(names).toEqual(['ping']);
    expect(Number(counted.get('ping'))).toBeGreaterThanOrEqual(5);
    await all.close();
  });
});
