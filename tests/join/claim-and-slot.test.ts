import { afterEach, expect, jest, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, EVENTS, INIT, messageBody, problemOf, statusOf, WHOLE } from '../support/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { RedisProxy, Sent } from '../support/redis-proxy.ts';
import { OTHER_USER, type TestRelay } from '../support/relay.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';
import { CHANNEL, SUSPEND_PATH } from '../support/suspend.ts';

jest.setTimeout(30_000);

/** No slot is free again by itself while a test runs. */
const BUDGET = {
  RATE_LIMIT: '6',
  RATE_WINDOW_MS: '600000',
  RATE_MAX_WAIT_MS: '1000',
  METRICS_PORT: '9090',
};

let all: JoinInstances;
afterEach(() => all.close());

const claims = ({ by, text }: Sent) => by === 'relay' && text.includes('\r\nclaims\r\n');
const reserves = ({ by, text }: Sent) => by === 'relay' && text.includes('\r\nreserve\r\n');
const cancels = ({ by, text }: Sent) => by === 'relay' && text.includes('\r\ncancel\r\n');
const remaining = (client: RawClient) => Number(/^RateLimit: .*;r=(\d+)/m.exec(client.text())?.[1]);
const relayAt = (at: number) => all.relays[at] as TestRelay;
const wireAt = (at: number) => all.wires[at] as RedisProxy;
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
  test('claims its name and reserves its slot in one flight, and nothing else goes before it leaves', async () => {
    await start(BUDGET, 1);
    await sayWhole(0, idOf(1));
    const sent = wireAt(0).record();
    const asked = all.upstream.nextRequest();
    const client = all.say(0, idOf(2));
    await asked;
    const [claim, slot] = [sent.findIndex(claims), sent.findIndex(reserves)];
    expect(claim).toBeGreaterThanOrEqual(0);
    expect(slot).toBe(claim);
    const text = sent[claim]?.text ?? '';
    expect(text.indexOf('\r\nclaims\r\n')).toBeLessThan(text.indexOf('\r\nreserve\r\n'));
    await client.closed;
    expect(remaining(client)).toBe(4);
    expect(sent.filter(reserves)).toHaveLength(1);
    expect(sent.filter(cancels)).toHaveLength(0);
  });

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

  test('gives its slot back and frees its name if its client leaves before it is claimed', async () => {
    await start(BUDGET, 1);
    await sayWhole(0, idOf(1));
    const sent = wireAt(0).record();
    wireAt(0).slowDown(200);
    const leaving = all.say(0);
    await until(() => sent.some(reserves));
    expect(sent.some(claims)).toBe(true);
    leaving.socket.destroy();
    await until(() => sent.some(cancels));
    wireAt(0).slowDown(0);
    await runsEnded(all.redis);
    expect(all.upstream.requests).toHaveLength(1);
    const client = await sayWhole(0, idOf(2));
    expect(remaining(client)).toBe(4);
    await begin();
    expect(all.upstream.requests).toHaveLength(3);
  });

  test('gives its slot back and frees its name if it has no place for its stream', async () => {
    await start({ ...BUDGET, MAX_STREAMS_PER_USER: '1' }, 1);
    await begin();
    const sent = wireAt(0).record();
    expect(await problemOf(all.say(0, idOf(1)))).toMatchObject({ code: 'too_many_streams' });
    expect(sent.some(claims)).toBe(true);
    expect(sent.findIndex(reserves)).toBe(sent.findIndex(claims));
    await until(() => sent.some(cancels));
    expect(await all.redis.command('ZCARD', 'bot-relay:{budget:acme/helper}:slots')).toBe(1);
    await runsEnded(all.redis, 1);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('asks for no slot if it may have no place for its stream, and its body comes later', async () => {
    await start({ ...BUDGET, MAX_STREAMS_PER_USER: '1' }, 1);
    await begin();
    const sent = wireAt(0).record();
    const text = rawMessage({
      cookie: all.cookie,
      body: messageBody(idOf(1)),
      headers: ['Connection: close'],
    });
    const [head = '', body = ''] = text.split(/(?<=\r\n\r\n)/);
    const client = rawClient(relayAt(0).port, head);
    await until(() => sent.some(({ text }) => text.includes('bot-relay:streams:')));
    expect(sent.some(claims)).toBe(false);
    client.socket.write(body);
    expect(await problemOf(client)).toMatchObject({ code: 'too_many_streams' });
    expect(sent.some(claims)).toBe(true);
    expect(sent.some(reserves)).toBe(false);
  });

  test('is dropped by a suspend while it waits for its slot', async () => {
    await start({ ...BUDGET, RATE_LIMIT: '1', RATE_WINDOW_MS: '300000', RATE_MAX_WAIT_MS: '600000' }, 2);
    await sayWhole(0, idOf(1));
    const waiting = all.say(0);
    const tickets = async () => (await all.redis.command('KEYS', 'bot-relay:{unsent:*}:tickets')) as string[];
    while ((await tickets()).length === 0) await sleep(20);
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

  test('only in the claim, the slot is given back, and the message is not sent', async () => {
    await start(BUDGET, 1);
    const key = 'bot-relay:{runs}:names';
    const sent = wireAt(0).record();
    await all.redis.command('SET', key, 'not a sorted set');
    const refused = all.say(0);
    expect(await problemOf(refused)).toMatchObject({ code: 'session_store_unavailable' });
    expect(refused.text()).not.toMatch(/^RateLimit/m);
    await until(() => sent.some(cancels));
    await all.redis.command('DEL', key);
    const client = await sayWhole(0, idOf(1));
    expect(remaining(client)).toBe(5);
    expect(all.upstream.requests).toHaveLength(1);
  });
});

describeWithRedis('a message that joins a run', () => {
  test('of another instance gives its slot back at once, and tells nothing of it', async () => {
    await start();
    const { first, finish } = await begin();
    const sent = wireAt(1).record();
    const joiner = all.say(1);
    await joiner.waitFor('run.init');
    expect(sent.filter(reserves)).toHaveLength(1);
    expect(sent.findIndex(reserves)).toBe(sent.findIndex(claims));
    await until(() => sent.some(cancels));
    expect(await all.redis.command('ZCARD', 'bot-relay:{budget:acme/helper}:slots')).toBe(1);
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

  test('of its own instance asks for none', async () => {
    await start(BUDGET, 1);
    const { finish } = await begin();
    const sent = wireAt(0).record();
    const joiner = all.say(0);
    await joiner.waitFor('run.init');
    expect(sent.some(claims)).toBe(true);
    expect(sent.some(reserves)).toBe(false);
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

  test('together with many others keeps no new message waiting, and leaves the budget as it was', async () => {
    await start();
    const { finish } = await begin();
    const bob = await relayAt(1).signIn(OTHER_USER);
    const sent = wireAt(1).record();
    wireAt(1).slowDown(100);
    const joiners = Array.from({ length: 20 }, () => all.say(1));
    await until(() => sent.some(reserves));
    const others = [1, 2, 3, 4].map((n) => {
      const cookie = n === 1 ? bob : all.cookie;
      return relayAt(0).send(cookie, { body: messageBody(idOf(n)) });
    });
    for (const answer of await Promise.all(others)) {
      expect(answer.status).toBe(200);
      await answer.text();
    }
    for (const joiner of joiners) await joiner.waitFor('run.init');
    await finish(...joiners);
    await until(() => sent.filter(cancels).length > 0);
    expect(await all.redis.command('ZCARD', 'bot-relay:{budget:acme/helper}:slots')).toBe(5);
  });
});
