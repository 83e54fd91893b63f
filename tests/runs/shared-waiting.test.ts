import { afterEach, expect, test } from '@jest/globals';
import { bodyOf, EVENTS, INIT, problemOf, statusOf, WHOLE } from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  type JoinInstances,
  runsEnded,
  startJoinInstances,
  statesOfNames,
} from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all.close());

/** No slot is free again by itself while a test runs. */
const BUDGET = { RATE_LIMIT: '6', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '1000', METRICS_PORT: '9090' };
const SLOTS = 'bot-relay:{budget:acme/helper}:slots';
/** Another message than the usual one. Its answer is whole at once. */
const OTHER = { text: 'other', customMessageId: 'another-message-01' };
const AWAY = { code: 'session_store_unavailable', status: 503 };

/** A service that leaves the run of the usual message open, and answers others as wholes. */
async function start(environment: Record<string, string> = BUDGET, count = 2): Promise<void> {
  const first: Parameters<typeof startJoinInstances>[2] = ({ body }, socket) => {
    if (!String(body).includes('another')) return [INIT];
    socket.write(wholeStream(...EVENTS));
    return undefined;
  };
  // A command that is held fails only in a test that hangs.
  all = await startJoinInstances(count, environment, first, [{ commandTimeoutMs: 600_000 }]);
}

/** The usual message is claimed at the first instance, and waits for the only slot. */
async function claimed(): Promise<RawClient> {
  await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '2000', RATE_MAX_WAIT_MS: '20000' });
  expect(await bodyOf(all.say(0, OTHER))).toBe(WHOLE);
  const client = all.say(0);
  await until(async () => (await statesOfNames(all.redis)).includes('c'));
  return client;
}

/** The usual message is claimed at the first instance, whose question for a slot does not come to Redis. */
async function heldUp(): Promise<{ client: RawClient; release(): void }> {
  await start();
  const { begun, release } = firstWire().hold('client', '\r\nreserve\r\n');
  const client = all.say(0);
  await begun;
  expect(await statesOfNames(all.redis)).toEqual(['c']);
  return { client, release };
}

const slots = async () => Number(await all.redis.command('ZCARD', SLOTS));
/** How often the service has got the usual message. */
const sent = () => all.upstream.requests.filter(({ body }) => String(body).includes('"text":"hi"')).length;
const remaining = (client: RawClient) => Number(/^RateLimit: .*;r=(\d+)/m.exec(client.text())?.[1]);
const relayAt = (at: number) => all.relays[at] as TestRelay;
const firstWire = () => all.wires[0] as FaultProxy;

describeWithRedis('a message that is not sent', () => {
  test('takes no slot and leaves its name free if it has no place for its stream', async () => {
    await start({ ...BUDGET, MAX_STREAMS_PER_USER: '1' }, 1);
    await all.say(0).waitFor('run.init');
    expect(await problemOf(all.say(0, OTHER))).toMatchObject({ code: 'too_many_streams' });
    await until(async () => (await slots()) === 1);
    await runsEnded(all.redis, 1);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('since its reservation has failed leaves its name free', async () => {
    await start(BUDGET, 1);
    await all.redis.command('SET', SLOTS, 'not a sorted set');
    expect(await problemOf(all.say(0))).toMatchObject(AWAY);
    await runsEnded(all.redis);
    await all.redis.command('DEL', SLOTS);
    await all.say(0).waitFor('run.init');
    expect(sent()).toBe(1);
  });

  test('since its claim has failed takes no slot', async () => {
    await start(BUDGET, 1);
    await bodyOf(all.say(0, OTHER));
    const [key = ''] = (await all.redis.command('KEYS', 'bot-relay:{*}:names')) as string[];
    await all.redis.command('DEL', key);
    await all.redis.command('SET', key, 'not a hash');
    const refused = all.say(0);
    expect(await problemOf(refused)).toMatchObject(AWAY);
    expect(refused.text()).not.toMatch(/^RateLimit/m);
    expect(await slots()).toBe(1);
    expect(sent()).toBe(0);
  });
});

describeWithRedis('a message that joins a run', () => {
  test('of another instance takes no slot, and tells nothing of one', async () => {
    await start();
    const first = all.say(0);
    await first.waitFor('run.init');
    const joiner = all.say(1);
    await joiner.waitFor('run.init');
    expect(await slots()).toBe(1);
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const client of [first, joiner]) expect(await bodyOf(client)).toBe(WHOLE);
    expect(remaining(joiner)).toBe(remaining(first));
    const line = ({ msg, bot }: Record<string, unknown>) => msg === 'request' && bot !== undefined;
    expect(await relayAt(0).logLine(line)).toHaveProperty('slotWaitMs');
    expect(await relayAt(1).logLine(line)).not.toHaveProperty('slotWaitMs');
    expect(await relayAt(1).metricsText()).toMatch(/slot_wait_seconds_count\{outcome="granted"\} 0/);
    expect(await relayAt(0).metricsText()).toMatch(/slot_wait_seconds_count\{outcome="granted"\} 1/);
    const next = all.say(0, OTHER);
    await next.closed;
    expect(remaining(next)).toBe(4);
  });

  test('of its own instance asks for no slot', async () => {
    await start(BUDGET, 1);
    await all.say(0).waitFor('run.init');
    const asked = firstWire().record();
    await all.say(0).waitFor('run.init');
    expect(asked.some(({ by, text }) => by === 'client' && text.includes('\r\nreserve\r\n'))).toBe(false);
  });
});

describeWithRedis('a message that is claimed and waits for its slot', () => {
  test('is not sent if Redis is away then, and can be sent once it is back', async () => {
    const { client } = await heldUp();
    firstWire().cut();
    expect(await problemOf(client)).toMatchObject(AWAY);
    expect(statusOf(client)).toBe(503);
    expect(sent()).toBe(0);
    firstWire().mend();
    await all.say(1).waitFor('run.init');
    expect(sent()).toBe(1);
  });

  test('is sent once if Redis has lost all its data', async () => {
    const { client, release } = await heldUp();
    await all.redis.command('FLUSHALL');
    release();
    await client.waitFor('run.init');
    await all.sayAs(await relayAt(1).signIn(), 1).waitFor('run.init');
    expect(sent()).toBe(1);
  });

  test('is not sent by an instance that was held up, if another one has it then', async () => {
    const { client, release } = await heldUp();
    const other = all.say(1);
    await other.waitFor('run.init');
    release();
    await client.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const one of [client, other]) expect(await bodyOf(one)).toBe(WHOLE);
    expect(sent()).toBe(1);
  });

  test.each([0, 1])('can be sent again at once at instance %i, if its client leaves', async (at) => {
    const client = await claimed();
    client.socket.destroy();
    // They may find the dropped run, or what comes after that.
    for (const again of [all.say(at), all.say(at)]) {
      await again.waitFor('run.init');
      expect(statusOf(again)).toBe(200);
    }
    expect(sent()).toBe(1);
  });
});
