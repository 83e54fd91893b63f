import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  DELTA,
  DONE,
  EVENTS,
  type First,
  INIT,
  KEPT,
  problemOf,
  startJoinPair,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  endOf,
  expectExpiring,
  type JoinInstances,
  keysWhen,
  lapse,
  runsEnded,
  SOON,
  startJoinInstances,
  statesOfNames,
  storedUpTo,
} from '../harness/relay/join-instances.ts';
import { BOT_PATH, type TestRelay } from '../harness/relay/relay.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all?.close());

/** Starts instances that share a Redis, before a service that begins each stream with one event. */
async function start(environment: Record<string, string> = {}, count = 2, first: First = () => [INIT]) {
  // A command that is held fails only in a test that hangs.
  all = await startJoinInstances(count, environment, first, { ...SOON, commandTimeoutMs: 600_000 });
}
const relayAt = (at: number) => all.relays[at] as TestRelay;
const firstWire = () => all.wires[0] as FaultProxy;
const textIn = ({ body }: RawRequest) => String(body);
/** How often the service has got the usual message. */
const sent = () => all.upstream.requests.filter((request) => textIn(request).includes('"text":"hi"')).length;

/** The rest of the stream comes, and all these clients get the whole of it. */
async function expectWhole(clients: readonly RawClient[]): Promise<void> {
  all.emit(...EVENTS.slice(1));
  all.finish();
  for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
}

describeWithRedis('a run that several instances know', () => {
  test('is one for all that ask for it, while it goes on and after its end', async () => {
    await start({}, 3);
    const clients = Array.from({ length: 24 }, (_, n) => all.say(n % 3));
    for (const client of clients) await client.waitFor('run.init');
    clients.push(all.byName(1), all.byName(2));
    await expectWhole(clients);
    for (const at of [0, 1, 2]) {
      expect(await bodyOf(all.say(at))).toBe(WHOLE);
      expect(await bodyOf(all.byName(at))).toBe(WHOLE);
      expect(await bodyOf(all.byName(at, { headers: ['Last-Event-ID: 7'] }))).toBe(EVENTS.slice(3).join(''));
    }
    expect(all.upstream.requests).toHaveLength(1);
    const isLog = (key: string) => key.includes(':log:');
    const log = (await keysWhen(all.redis, (keys) => keys.some(isLog))).find(isLog) as string;
    expect(JSON.stringify(await all.redis.command('XRANGE', log, '-', '+'))).not.toContain('asgard');
  });

  test('is given as a whole to who comes back at another instance, also of a message without an id', async () => {
    await start();
    const message = { customMessageId: undefined };
    const cut = all.say(0, message);
    await cut.waitFor('run.init');
    await all.leave(0, cut);
    const back = all.say(1, message);
    await back.waitFor('run.init');
    await expectWhole([back]);
    expect(all.upstream.requests).toHaveLength(1);
    await runsEnded(all.redis);
    await all.say(1, message).waitFor('run.init');
    expect(all.upstream.requests).toHaveLength(2);
  });

  test('goes on without a hole after each of six reconnections, in turn at two instances', async () => {
    // Without followers, an event is stored within a second: who comes before that looks for it again.
    all = await startJoinInstances(2, {}, () => [INIT]);
    let client = all.say(0);
    await client.waitFor('run.init');
    for (let n = 1; n <= 6; n++) {
      const kept = `id: ${n}\n${DELTA}`;
      all.emit(kept, DELTA);
      await until(() => dechunk(client.text()).body.endsWith(kept + DELTA));
      client.socket.destroy();
      client = all.say(n % 2, {}, [`Last-Event-ID: ${n}`]);
      await client.waitFor(DELTA);
      expect(client.text()).not.toContain(kept);
    }
    all.emit(DONE);
    all.finish();
    expect(await bodyOf(client)).toBe(DELTA + DONE);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('has no hole: a stream whose beginning is gone is refused, and so is one that is not kept', async () => {
    await start({ JOIN_MAX_BYTES: '262144' });
    await all.say(0).waitFor('run.init');
    const large = (n: number) => `id: ${n}\ndata: {"eventType":"x","n":${n},"x":"${'x'.repeat(16_000)}"}\n\n`;
    let length = INIT.length;
    for (let n = 1; n <= 40; n++) {
      all.emit(large(n));
      length += large(n).length;
      // The log is closed if an event is dropped before it is stored.
      if (n % 4 === 0) await until(async () => (await storedUpTo(all.redis)) === length);
    }
    expect(await problemOf(all.say(1))).toMatchObject({ code: 'run_not_kept', retryable: false });
    expect(await problemOf(all.byName(1))).toMatchObject({ code: 'run_not_kept' });
    const resumed = all.say(1, {}, ['Last-Event-ID: 39']);
    await resumed.waitFor('"n":40,');
    all.emit(DONE);
    all.finish();
    expect(await bodyOf(resumed)).toBe(large(40) + DONE);
    expect(await problemOf(all.say(1))).toMatchObject({ code: 'run_over', status: 410 });
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('comes as a whole to its only reader, at another instance, though it is larger than what is kept', async () => {
    await start({ JOIN_MAX_BYTES: '65536' });
    const first = all.say(0);
    await first.waitFor('run.init');
    const only = all.say(1);
    all.emit(DELTA, KEPT);
    await only.waitFor('message.complete');
    await all.leave(0, first);
    const large = `data: ${'x'.repeat(8_000)}\n\n`.repeat(150);
    all.emit(large, DONE);
    all.finish();
    const { events, code } = await endOf(only);
    expect(code).toBeUndefined();
    expect(events === INIT + DELTA + KEPT + large + DONE).toBe(true);
  });
});

const ENDED = { text: 'short', customMessageId: 'message-that-ended' };
/** How many messages have come but for resets. */
const runs = () =>
  all.upstream.requests.filter((request) => /"text":"(hi|short)"/.test(textIn(request))).length;
const RESET = { action: 'RESET_CHANNEL', text: '', customMessageId: 'reset-000000000001' };

/** Asks an instance for an operation of the conversation. */
async function operation(at: number, method: string, path: string): Promise<void> {
  const url = `${BOT_PATH.replace('message/sse', path)}?custom_channel_id=c1`;
  const answer = await call(relayAt(at).port, url, { method, headers: { Cookie: all.cookie } });
  expect(answer.status).toBe(204);
}

describeWithRedis('the names of a conversation', () => {
  test.each<[way: string, reset: () => Promise<unknown>]>([
    ['a message with the action of a reset', () => bodyOf(all.say(1, RESET))],
    ['DELETE channel', () => operation(1, 'DELETE', 'channel')],
    ['POST channel/clear', () => operation(1, 'POST', 'channel/clear')],
  ])('are forgotten by %s if their runs have ended, and no others', async (_way, reset) => {
    // A message with a short text and a reset are whole answers; other messages have begun and go on.
    await start({}, 2, (request, socket) => {
      const isStream = request.requestLine.includes('/sse');
      if (isStream && !/short|RESET_CHANNEL/.test(textIn(request))) return [INIT];
      const answer = wholeStream(INIT, `data: answer ${runs()}\n\n`, DONE);
      socket.write(isStream ? answer : plainAnswer('204 No Content', []));
      return undefined;
    });
    const ANSWERS = [1, 2, 3].map((n) => `${INIT}data: answer ${n}\n\n${DONE}`);
    const live = all.say(0);
    await live.waitFor('run.init');
    const [stream] = all.streams;
    expect(await bodyOf(all.say(0, ENDED))).toBe(ANSWERS[1]);
    await runsEnded(all.redis, 1);
    expect(await bodyOf(all.say(1, ENDED))).toBe(ANSWERS[1]);
    await reset();
    for (const at of [0, 1]) {
      const named = all.byName(at, { id: ENDED.customMessageId });
      expect(await problemOf(named)).toMatchObject({ code: 'run_over' });
    }
    // Both instances join the one that goes on, and the other message runs once more.
    const joined = [all.say(0), all.say(1), all.byName(0), all.byName(1)];
    for (const client of joined) await client.waitFor('run.init');
    const again = [
      () => all.say(1, ENDED),
      () => all.byName(0, { id: ENDED.customMessageId }),
      () => all.say(0, ENDED),
    ];
    for (const ask of again) expect(await bodyOf(ask())).toBe(ANSWERS[2]);
    stream?.write(Buffer.concat([...EVENTS.slice(1).map(chunk), Buffer.from(LAST_CHUNK)]));
    for (const client of [live, ...joined]) expect(await bodyOf(client)).toBe(WHOLE);
    expect(runs()).toBe(3);
  });
});

/** No slot is free again by itself while a test runs. */
const BUDGET = { RATE_LIMIT: '6', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '1000' };
const SLOTS = 'bot-relay:{budget:acme/helper}:slots';
const OTHER = { text: 'other', customMessageId: 'another-message-01' };
const AWAY = { code: 'session_store_unavailable', status: 503 };
const slots = async () => Number(await all.redis.command('ZCARD', SLOTS));

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

  test('since the answer to its claim is lost leaves its name free', async () => {
    await start(BUDGET, 2, (request, socket) => {
      if (!textIn(request).includes('other')) return [INIT];
      socket.write(wholeStream(INIT));
      return undefined;
    });
    // After this, Redis knows all scripts, and nothing is under way.
    await bodyOf(all.say(0, OTHER));
    await runsEnded(all.redis);
    const claim = firstWire().hold('server', ':names');
    const client = all.say(0);
    await claim.begun;
    await until(async () => (await statesOfNames(all.redis)).includes('c'));
    firstWire().cut();
    expect(await problemOf(client)).toMatchObject(AWAY);
    claim.release();
    firstWire().mend();
    await all.say(1).waitFor('run.init');
    expect(sent()).toBe(1);
  });

  test('since its claim has failed takes no slot', async () => {
    await start(BUDGET, 1);
    await all.say(0, OTHER).waitFor('run.init');
    const [key = ''] = (await all.redis.command('KEYS', 'bot-relay:{*}:names')) as string[];
    await all.redis.command('SET', key, 'not a hash');
    const refused = all.say(0);
    expect(await problemOf(refused)).toMatchObject(AWAY);
    expect(refused.text()).not.toMatch(/^RateLimit/m);
    expect([await slots(), sent()]).toEqual([1, 0]);
  });
});

describeWithRedis('a message that joins a run of another instance', () => {
  test('takes no slot, and tells nothing of one', async () => {
    await start(BUDGET);
    const first = all.say(0);
    await first.waitFor('run.init');
    const joiner = all.say(1);
    await joiner.waitFor('run.init');
    expect(await slots()).toBe(1);
    await expectWhole([first, joiner]);
    const remaining = ({ text }: RawClient) => /^RateLimit: .*;r=(\d+)/m.exec(text())?.[1];
    expect([remaining(first), remaining(joiner)]).toEqual(['5', '5']);
    const line = ({ msg, bot }: Record<string, unknown>) => msg === 'request' && bot !== undefined;
    expect(await relayAt(0).logLine(line)).toHaveProperty('slotWaitMs');
    expect(await relayAt(1).logLine(line)).not.toHaveProperty('slotWaitMs');
    for (const at of [0, 1])
      expect(await relayAt(at).metricsText()).toContain(
        `slot_wait_seconds_count{outcome="granted"} ${1 - at}\n`,
      );
  });
});

describeWithRedis('a message that is claimed and waits for its slot', () => {
  /** The usual message is claimed at the first instance, whose question for a slot does not come to Redis. */
  async function heldUp(): Promise<{ client: RawClient; release(): void }> {
    await start(BUDGET);
    const { begun, release } = firstWire().hold('client', '\r\nreserve\r\n');
    const client = all.say(0);
    await begun;
    expect(await statesOfNames(all.redis)).toEqual(['c']);
    return { client, release };
  }

  test('is not sent if Redis is away then, and can be sent once it is back', async () => {
    const { client, release } = await heldUp();
    firstWire().cut();
    expect(await problemOf(client)).toMatchObject(AWAY);
    expect([statusOf(client), sent()]).toEqual([503, 0]);
    release();
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
    await lapse(all.redis);
    const other = all.say(1);
    await other.waitFor('run.init');
    release();
    await client.waitFor('run.init');
    await expectWhole([client, other]);
    expect(sent()).toBe(1);
  });

  test.each([0, 1])('can be sent again at once at instance %i, if its client leaves', async (at) => {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '500', RATE_MAX_WAIT_MS: '20000' });
    await all.say(0, OTHER).waitFor('run.init');
    const client = all.say(0);
    await until(async () => (await statesOfNames(all.redis)).length === 2);
    client.socket.destroy();
    // They may find the dropped run, or what comes after that.
    for (const again of [all.say(at), all.say(at)]) {
      await again.waitFor('run.init');
      expect(statusOf(again)).toBe(200);
    }
    expect(sent()).toBe(1);
  });
});

const begin = (...events: readonly string[]) =>
  Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk)]);
/** How the service answers a message, by its text. Those that are left go on. */
const ENDINGS: Readonly<Record<string, (socket: Socket) => unknown>> = {
  whole: (socket) => socket.write(wholeStream(...EVENTS)),
  'short id': (socket) => socket.write(wholeStream(...EVENTS)),
  refused: (socket) => socket.write(plainAnswer('422 No', [])),
  failed: (socket) => socket.write(plainAnswer('500 No', [])),
  unanswered: (socket) => socket.destroy(),
  broken(socket) {
    socket.write(begin(INIT));
    setTimeout(() => socket.destroy(), 20);
  },
  slow(socket) {
    socket.write(begin(INIT));
    setTimeout(
      () => socket.write(Buffer.concat([...EVENTS.slice(1).map(chunk), Buffer.from(LAST_CHUNK)])),
      50,
    );
  },
  left: (socket) => socket.write(begin(INIT)),
  'left early': (socket) => socket.write(begin(INIT)),
};
/** `RUNS` sets another number. */
const RUNS = Number(process.env.RUNS ?? 90);
const FORGETFUL = {
  ...{ RATE_LIMIT: '100000', RATE_MAX_WAIT_MS: '0', RESUME_UPSTREAM: 'off' },
  ...{ JOIN_GRACE_MS: '100', JOIN_KEEP_MS: '300', JOIN_REMEMBER_MS: '300' },
};
const answerByText: First = (request, socket) => {
  ENDINGS[JSON.parse(textIn(request)).text]?.(socket);
  return undefined;
};

/** Ends runs in every way, each of which is asked for twice; resolves when all is as before. */
async function endRuns(relays: readonly TestRelay[], say: JoinInstances['say']): Promise<void> {
  const texts = Object.keys(ENDINGS);
  const endRun = async (_: unknown, n: number) => {
    const text = texts[n % texts.length] as string;
    const id = text === 'short id' ? `m-${n}` : `message-number-${n}-of-many`;
    const message = { text, customChannelId: `c${n % 20}`, customMessageId: id };
    const clients = [say(n % 2, message), say((n + 1) % 2, message)];
    if (text === 'left') await Promise.all(clients.map((client) => client.waitFor('run.init')));
    for (const client of clients) {
      if (text.startsWith('left')) client.socket.destroy();
      else await bodyOf(client);
    }
  };
  await Promise.all(Array.from({ length: RUNS }, endRun));
  await until(async () => {
    const left = await Promise.all(relays.flatMap((relay) => [relay.openMessages(), relay.runBytes()]));
    return left.every((count) => count === 0);
  });
  let expired = 0;
  for (const relay of relays) {
    const metrics = await relay.metricsText();
    expect(metrics).toMatch(/^bot_relay_open_streams 0$/m);
    expect(metrics).toMatch(/^bot_relay_run_log_bytes 0$/m);
    expired += Number(/^bot_relay_runs_left_total\{outcome="expired"\} (\d+)$/m.exec(metrics)?.[1] ?? 0);
  }
  expect(expired).toBeGreaterThanOrEqual(Math.floor(RUNS / texts.length));
}

describe('runs of all endings', () => {
  test('leave no run, no timer and no gauge behind', async () => {
    const pair = await startJoinPair(FORGETFUL, answerByText);
    try {
      await endRuns([pair.relay], (_at, message) => pair.say(message));
      const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
      await until(() => timers() < 20);
    } finally {
      await pair.close();
    }
  });
});

describeWithRedis('runs of all endings at two instances', () => {
  test('leave no key for ever, no subscription and no memory behind', async () => {
    await start(FORGETFUL, 2, answerByText);
    const subscribed = () => all.redis.command('PUBSUB', 'NUMSUB', 'bot-relay:{runs}:news');
    const before = await subscribed();
    await endRuns(all.relays, all.say);
    await runsEnded(all.redis);
    await expectExpiring(all.redis);
    expect(await subscribed()).toEqual(before);
  });
});
