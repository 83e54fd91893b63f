import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  DELTA,
  DONE,
  EVENTS,
  errorEventOf,
  INIT,
  KEPT,
  problemOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { dechunk } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  endOf,
  type JoinInstances,
  keysWhen,
  runsEnded,
  startJoinInstances,
  storedUpTo,
} from '../harness/relay/join-instances.ts';
import { BOT_PATH, type TestRelay } from '../harness/relay/relay.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all.close());

async function start(count = 2, environment: Record<string, string> = {}): Promise<void> {
  all = await startJoinInstances(count, environment, () => [INIT]);
}

describeWithRedis('a run that several instances know', () => {
  test('is one for all that ask for it, while it goes on and after its end', async () => {
    await start(3);
    const clients = Array.from({ length: 24 }, (_, n) => all.say(n % 3));
    for (const client of clients) await client.waitFor('run.init');
    clients.push(all.byName(1), all.byName(2));
    for (const event of EVENTS.slice(1)) all.emit(event);
    all.finish();
    for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
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

  test('of a message without an id can be joined while it goes on, and not after its end', async () => {
    await start();
    const message = { customMessageId: undefined };
    const clients = [0, 1, 0, 1].map((at) => all.say(at, message));
    for (const client of clients) await client.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
    await runsEnded(all.redis);
    await all.say(1, message).waitFor('run.init');
    expect(all.upstream.requests).toHaveLength(2);
  });

  test('that may have run and has failed is told again with the same failure, and does not run again', async () => {
    all = await startJoinInstances(2, {}, (_request, socket) => {
      socket.write(plainAnswer('500 No', []));
      return undefined;
    });
    const failure = { code: 'upstream_bad_response', status: 502, maybeStarted: true, retryable: false };
    expect(await errorEventOf(all.say(0))).toMatchObject(failure);
    await runsEnded(all.redis);
    for (const again of [all.say(0), all.say(1), all.byName(0), all.byName(1)]) {
      expect(await errorEventOf(again)).toMatchObject(failure);
    }
    expect(all.upstream.requests).toHaveLength(1);
  });

  test.each([{}, { customMessageId: undefined }])(
    'is given as a whole to who comes back at another instance: %j',
    async (message) => {
      await start();
      const cut = all.say(0, message);
      await cut.waitFor('run.init');
      await all.leave(0, cut);
      const back = all.say(1, message);
      await back.waitFor('run.init');
      all.emit(...EVENTS.slice(1));
      all.finish();
      expect(await bodyOf(back)).toBe(WHOLE);
      expect(all.upstream.requests).toHaveLength(1);
    },
  );

  test('goes on without a hole after each of ten reconnections, in turn at two instances', async () => {
    await start();
    let client = all.say(0);
    await client.waitFor('run.init');
    for (let n = 1; n <= 10; n++) {
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
    await start(2, { JOIN_MAX_BYTES: '262144' });
    const first = all.say(0);
    await first.waitFor('run.init');
    const large = (n: number) => `id: ${n}\ndata: {"eventType":"x","n":${n},"x":"${'x'.repeat(16_000)}"}\n\n`;
    let sent = INIT.length;
    for (let n = 1; n <= 40; n++) {
      all.emit(large(n));
      sent += large(n).length;
      // It is stored once a second, and what is forgotten before that closes the log.
      if (n % 4 === 0) await until(async () => (await storedUpTo(all.redis)) === sent);
    }
    await first.waitFor('"n":40,');
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

  test('holds a service back whose only reader is slow, and at another instance', async () => {
    await start(2, { JOIN_MAX_BYTES: '65536' });
    const first = all.say(0);
    await first.waitFor('run.init');
    const slow = all.say(1);
    await slow.waitFor('run.init');
    all.emit(DELTA, KEPT);
    await slow.waitFor('message.complete');
    await all.leave(0, first);
    const large = `data: ${'x'.repeat(8_000)}\n\n`.repeat(150);
    all.emit(large, DONE);
    all.finish();
    const { events, code } = await endOf(slow);
    expect(code).toBeUndefined();
    expect(events === INIT + DELTA + KEPT + large + DONE).toBe(true);
  });
});

const textIn = ({ body }: RawRequest) => String(body);
const messages = () =>
  all.upstream.requests.filter(
    (request) => request.requestLine.includes('/sse') && !textIn(request).includes('RESET_CHANNEL'),
  ).length;

/** Asks an instance for an operation of the conversation. */
async function operation(at: number, method: string, path: string): Promise<void> {
  const url = `${BOT_PATH.replace('message/sse', path)}?custom_channel_id=c1`;
  const { port } = all.relays[at] as TestRelay;
  expect((await call(port, url, { method, headers: { Cookie: all.cookie } })).status).toBe(204);
}

const ENDED = { text: 'short', customMessageId: 'message-that-ended' };
const RESET = { action: 'RESET_CHANNEL', text: '', customMessageId: 'reset-000000000001' };
const WAYS: [way: string, reset: () => Promise<unknown>][] = [
  ['a message with the action of a reset', async () => expect(await bodyOf(all.say(1, RESET))).toBe(WHOLE)],
  ['DELETE channel', () => operation(1, 'DELETE', 'channel')],
  ['POST channel/clear', () => operation(1, 'POST', 'channel/clear')],
];

describeWithRedis('the names of a conversation', () => {
  test.each(WAYS)('are forgotten by %s if their runs have ended, and no others', async (_way, reset) => {
    // A message with a short text and a reset are whole answers; other messages have begun and go on.
    all = await startJoinInstances(2, {}, (request, socket) => {
      const isStream = request.requestLine.includes('/sse');
      if (isStream && !/short|RESET_CHANNEL/.test(textIn(request))) return [INIT];
      socket.write(isStream ? wholeStream(...EVENTS) : plainAnswer('204 No Content', []));
      return undefined;
    });
    const live = all.say(0);
    await live.waitFor('run.init');
    const [stream] = all.streams;
    expect(await bodyOf(all.say(0, ENDED))).toBe(WHOLE);
    await runsEnded(all.redis, 1);
    expect(await bodyOf(all.say(1, ENDED))).toBe(WHOLE);
    expect(messages()).toBe(2);
    await reset();
    for (const at of [0, 1]) {
      const named = all.byName(at, { id: ENDED.customMessageId });
      expect(await problemOf(named)).toMatchObject({ code: 'run_over' });
    }
    // Both instances join the one that goes on, and the other message runs once more.
    const joined = [all.say(0), all.say(1), all.byName(0), all.byName(1)];
    for (const client of joined) await client.waitFor('run.init');
    expect(messages()).toBe(2);
    for (const at of [0, 1]) expect(await bodyOf(all.say(at, ENDED))).toBe(WHOLE);
    expect(messages()).toBe(3);
    stream?.write(Buffer.concat([...EVENTS.slice(1).map(chunk), Buffer.from(LAST_CHUNK)]));
    for (const client of [live, ...joined]) expect(await bodyOf(client)).toBe(WHOLE);
    expect(messages()).toBe(3);
  });
});
