import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { startRelay, type TestLimits, type TestRelay } from '../harness/relay/relay.ts';

const relays: TestRelay[] = [];
afterEach(async () => {
  for (const { close } of relays.splice(0)) await close();
  stopRedis();
});

async function start(url: string, limits: TestLimits = {}): Promise<TestRelay> {
  const relay = await startRelay('http://127.0.0.1:9', { REDIS_URL: url, METRICS_PORT: '9090' }, limits);
  relays.push(relay);
  return relay;
}

const ask = async ({ port }: TestRelay, Cookie: string) =>
  (await call(port, '/auth/session', { headers: { Cookie } })).status;
const signOut = ({ port }: TestRelay, Cookie: string) =>
  call(port, '/auth/logout', { method: 'POST', headers: { Cookie } });
const lost = async (relay: TestRelay) => total(await relay.metricsText(), 'bot_relay_sessions_lost_total');

describeWithRedis('the metric of lost sessions', () => {
  test('counts each session once that was in use when Redis was emptied', async () => {
    const redis = await startRedis();
    const relay = await start(redis.url);
    const cookies = [await relay.signIn(), await relay.signIn(), await relay.signIn()];
    for (const cookie of cookies) expect(await ask(relay, cookie)).toBe(200);
    expect(await relay.metricsText()).toContain('bot_relay_sessions_lost_total 0');
    await redis.command('FLUSHALL');
    for (const cookie of [...cookies, ...cookies]) expect(await ask(relay, cookie)).toBe(401);
    expect(await lost(relay)).toBe(3);
  });

  test('counts no session that was signed out at another instance, or has expired', async () => {
    const redis = await startRedis();
    const [relay, other] = [await start(redis.url, { idleMs: 1_000 }), await start(redis.url)];
    const [left, forgotten] = [await other.signIn(), await relay.signIn()];
    for (const cookie of [left, forgotten]) expect(await ask(relay, cookie)).toBe(200);
    expect((await signOut(other, left)).status).toBe(204);
    expect(await ask(relay, left)).toBe(401);
    const keys = async () => (await redis.command('KEYS', 'bot-relay:session:*')) as string[];
    // What is left there is the mark of the one that was signed out.
    await until(async () => (await keys()).length === 1);
    expect(await ask(relay, forgotten)).toBe(401);
    expect(await lost(relay)).toBe(0);
  });
});
