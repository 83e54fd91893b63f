import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { bodyOf, EVENTS, INIT, problemOf, statusOf, WHOLE } from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { CHANNEL, SUSPEND_PATH } from '../harness/clients/suspend.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  type JoinInstances,
  runsEnded,
  startJoinInstances,
  statesOfNames,
} from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { plainAnswer, until } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, wholeStream } from '../harness/service/raw-upstream.ts';

/** No slot is free again by itself while a test runs. */
const BUDGET = {
  RATE_LIMIT: '6',
  RATE_WINDOW_MS: '600000',
  RATE_MAX_WAIT_MS: '1000',
  METRICS_PORT: '9090',
};

let all: JoinInstances;
afterEach(() => all.close());

/** How many slots of the budget are taken. */
const slots = async () => Number(await all.redis.command('ZCARD', 'bot-relay:{budget:acme/helper}:slots'));
const remaining = (client: RawClient) => Number(/^RateLimit: .*;r=(\d+)/m.exec(client.text())?.[1]);
const relayAt = (at: number) => all.relays[at] as TestRelay;
const wireAt = (at: number) => all.wires[at] as FaultProxy;
const idOf = (n: number) => ({ customMessageId: `another-message-${n}` });

/** Sends a message that is answered as a whole, and waits for that. */
async function sayWhole(at: number, changes: object): Promise<RawClient> {
  const client = all.say(at, changes);
  await client.closed;
  return client;
}

/** A service that leaves the run of the usual message open, and answers others as wholes. */
async function start(environment: Record<string, string> = BUDGET, count = 2): Promise<void> {
  all = await startJoinInstances(count, environment, ({ requestLine, body }, socket) => {
    if (!requestLine.includes('/sse')) socket.write(plainAnswer('204 No Content', []));
    else if (!body.toString().includes('another')) return [INIT];
    else socket.write(wholeStream(...EVENTS));
    return undefined;
  });
}

interface Begun {
  readonly first: RawClient;
  /** Ends the run, of which all of these and the first client get the whole stream. */
  finish(...others: readonly RawClient[]): Promise<void>;
}

/** Begins a run at instance 0 that goes on. */
async function begin(): Promise<Begun> {
  const first = all.say(0);
  await first.waitFor('run.init');
  const stream = all.streams.at(-1);
  return {
    first,
    async finish(...others) {
      stream?.write(Buffer.concat([...EVENTS.slice(1).map(chunk), Buffer.from(LAST_CHUNK)]));
      for (const client of [first, ...others]) expect(await bodyOf(client)).toBe(WHOLE);
    },
  };
}

describeWithRedis('a message that nobody has sent', () => {
  test('is refused for want of a slot as before, and its name is free again', async () => {
    await start({ ...BUDGET, RATE_LIMIT: '1' }, 1);
    await sayWhole(0, idOf(1));
    for (let n = 0; n < 2; n++) {
      const refused = all.say(0);
      expect(await problemOf(refused)).toMatchObject({ code: 'rate_limited' });
      expect(statusOf(refused)).toBe(429);
      await runsEnded(all.redis);
    }
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('gives its slot back and frees its name if it has no place for its stream', async () => {
    await start({ ...BUDGET, MAX_STREAMS_PER_USER: '1' }, 1);
    await begin();
    expect(await problemOf(all.say(0, idOf(1)))).toMatchObject({ code: 'too_many_streams' });
    await until(async () => (await slots()) === 1);
    await runsEnded(all.redis, 1);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('is dropped by a suspend while it waits for its slot', async () => {
    await start({ ...BUDGET, RATE_LIMIT: '1', RATE_WINDOW_MS: '300000', RATE_MAX_WAIT_MS: '600000' }, 2);
    await sayWhole(0, idOf(1));
    const waiting = all.say(0);
    await until(async () => (await statesOfNames(all.redis)).includes('c'));
    const headers = { Cookie: all.cookie };
    const stopped = await call(relayAt(1).port, SUSPEND_PATH + CHANNEL, { method: 'POST', headers });
    expect(stopped.status).toBe(204);
    await waiting.closed;
    expect(waiting.text()).toContain('"code":"stopped"');
    await runsEnded(all.redis);
  });
});

describeWithRedis('if Redis fails', () => {
  test('only in the reservation, the message is not sent, and its name is free again', async () => {
    await start(BUDGET, 1);
    const key = 'bot-relay:{budget:acme/helper}:slots';
    await all.redis.command('SET', key, 'not a sorted set');
    const refused = all.say(0);
    expect(await problemOf(refused)).toMatchObject({ code: 'session_store_unavailable' });
    expect(statusOf(refused)).toBe(503);
    await runsEnded(all.redis);
    await all.redis.command('DEL', key);
    await begin();
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('only in the claim, no slot is taken, and the message is not sent', async () => {
    await start(BUDGET, 1);
    await sayWhole(0, idOf(1));
    const [key = ''] = (await all.redis.command('KEYS', 'bot-relay:{*}:names')) as string[];
    await all.redis.command('DEL', key);
    await all.redis.command('SET', key, 'not a hash');
    const refused = all.say(0);
    expect(await problemOf(refused)).toMatchObject({ code: 'session_store_unavailable' });
    expect(statusOf(refused)).toBe(503);
    expect(refused.text()).not.toMatch(/^RateLimit/m);
    expect(await slots()).toBe(1);
    await all.redis.command('DEL', key);
    const client = await sayWhole(0, idOf(2));
    expect(remaining(client)).toBe(4);
    expect(all.upstream.requests).toHaveLength(2);
  });
});

describeWithRedis('a message that joins a run', () => {
  test('of another instance takes no slot, and tells nothing of one', async () => {
    await start();
    const { first, finish } = await begin();
    const joiner = all.say(1);
    await joiner.waitFor('run.init');
    await until(async () => (await slots()) === 1);
    await finish(joiner);
    expect(remaining(joiner)).toBe(remaining(first));
    const line = ({ msg, bot }: Record<string, unknown>) => msg === 'request' && bot !== undefined;
    expect(await relayAt(0).logLine(line)).toHaveProperty('slotWaitMs');
    expect(await relayAt(1).logLine(line)).not.toHaveProperty('slotWaitMs');
    expect(await relayAt(1).metricsText()).toMatch(/slot_wait_seconds_count\{outcome="granted"\} 0/);
    expect(await relayAt(0).metricsText()).toMatch(/slot_wait_seconds_count\{outcome="granted"\} 1/);
    const next = await sayWhole(0, idOf(1));
    expect(remaining(next)).toBe(4);
  });

  test('of its own instance asks for no slot', async () => {
    await start(BUDGET, 1);
    const { finish } = await begin();
    const sent = wireAt(0).record();
    const joiner = all.say(0);
    await joiner.waitFor('run.init');
    expect(sent.some(({ by, text }) => by === 'client' && text.includes('\r\nreserve\r\n'))).toBe(false);
    await finish(joiner);
  });

  test('is not refused if the budget has no slot', async () => {
    await start({ ...BUDGET, RATE_LIMIT: '1' });
    const { finish } = await begin();
    const joiners = Array.from({ length: 5 }, () => all.say(1));
    for (const joiner of joiners) await joiner.waitFor('run.init');
    await finish(...joiners);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
