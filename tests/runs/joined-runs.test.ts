import { writeFileSync } from 'node:fs';
import { ServerResponse } from 'node:http';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { MAX_READERS_PER_USER } from '../../src/runs/run-reader.ts';
import { fieldClient } from '../harness/clients/field-client.ts';
import {
  bodyOf,
  DELTA,
  DONE,
  EVENTS,
  errorEventOf,
  ID,
  INIT,
  type JoinPair,
  KEPT,
  messageBody,
  problemOf,
  startJoinPair,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { jsonAnswer, suspend } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { describeWithNginx, startNginx } from '../harness/relay/deployed-load-balancers.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../harness/relay/join-instances.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import { BOT_PATH, OTHER_USER } from '../harness/relay/relay.ts';
import { chunk, LAST_CHUNK, plainAnswer } from '../harness/service/raw-upstream.ts';

let pair: JoinPair;
const opened: { close(): Promise<void> }[] = [];
async function start(...options: Parameters<typeof startJoinPair>): Promise<void> {
  pair = await startJoinPair(...options);
  opened.push(pair);
}
afterEach(async () => {
  await stopPrograms();
  for (const one of opened.splice(0)) await one.close();
  await stopProcesses();
});

const NO_ID = { customMessageId: undefined };
const OTHER = { text: 'other', customMessageId: 'another-message-01' };
const ONE_SLOT = { RATE_LIMIT: '1', RATE_WINDOW_MS: '300000', RATE_MAX_WAIT_MS: '0' };
const FAILURE = { code: 'upstream_bad_response', status: 502, maybeStarted: true, retryable: false };
const resumed = (id: string) => ({ headers: [`Last-Event-ID: ${id}`] });
/** The clients have got the first event of a stream. */
async function begun<T extends readonly RawClient[]>(...clients: T): Promise<T> {
  for (const client of clients) await client.waitFor('run.init');
  return clients;
}
/** The service sends the rest of the newest stream, behind its first events. */
function finish(from = 1): void {
  pair.emit(...EVENTS.slice(from));
  pair.finish();
}
const requests = () => pair.upstream.requests.length;

describe('the same message, sent again while it runs', () => {
  test('gets the whole stream from the start, and the same end', async () => {
    await start({}, () => [INIT]);
    const [first, second] = [...(await begun(pair.say())), ...(await begun(pair.say()))];
    finish();
    for (const client of [first, second]) expect(await bodyOf(client)).toBe(WHOLE);
    expect(requests()).toBe(1);
    const line = await pair.relay.logLine(({ msg }) => msg === 'run joined');
    expect(line).toMatchObject({ bot: 'acme/helper', outcome: 'live' });
    const ids = pair.relay.logs
      .filter(({ msg, bot }) => msg === 'request' && bot)
      .map((one) => one.requestId);
    expect(ids.sort()).toEqual([line.requestId, line.runRequestId].sort());
  });

  test('joins the run at every event, also three times at once', async () => {
    await start(ONE_SLOT);
    let client = pair.say();
    await client.waitFor('\r\n\r\n');
    for (const event of EVENTS) {
      pair.emit(event);
      await client.waitFor(event);
      client.socket.destroy();
      const [again, ...others] = await begun(pair.say(), pair.say(), pair.say());
      for (const { socket } of others) socket.destroy();
      client = again;
    }
    pair.finish();
    expect(await bodyOf(client)).toBe(WHOLE);
    expect(requests()).toBe(1);
  });

  test('before its stream begins, gets the outcome of the first', async () => {
    let refuse = (_socket: Socket) => {};
    await start({}, (_request, socket) => {
      refuse(socket);
      return undefined;
    });
    const asked = pair.upstream.nextRequest();
    const clients = [pair.say()];
    await asked;
    clients.push(pair.say(), pair.byName());
    await pair.relay.untilOpen(3);
    pair.service.write(plainAnswer('500 No', []));
    for (const client of clients) expect(await errorEventOf(client)).toMatchObject(FAILURE);
    // It may have run, so that it is not sent again.
    for (const again of [pair.say(), pair.byName()]) expect(await errorEventOf(again)).toMatchObject(FAILURE);
    expect(requests()).toBe(1);
    // What the service has refused may be sent again.
    refuse = (socket) => socket.write(plainAnswer('422 No', []));
    for (const expected of [2, 3]) {
      const refused = { code: 'upstream_refused', status: 422, retryable: false };
      expect(await errorEventOf(pair.say({ text: 'other' }))).toMatchObject(refused);
      expect(requests()).toBe(expected);
    }
  });

  test('waits with heartbeats if no event has come yet', async () => {
    await start({ HEARTBEAT_MS: '50' });
    const first = pair.say();
    await first.waitFor(':\n');
    const second = pair.say();
    await second.waitFor(':\n');
    await pair.leave(first);
    pair.emit('\uFEFF');
    finish(0);
    expect((await bodyOf(second)).replaceAll(':\n', '')).toBe(WHOLE);
  });

  test.each([{}, NO_ID])(
    'joins nothing with another body, in another conversation, or as another user: %j',
    async (message) => {
      await start({ FORWARD_QUERY: 'is_debug' }, () => [INIT]);
      const cookie = await pair.relay.signIn(OTHER_USER);
      const withQuery = (query: string) => pair.say(message, { path: `${BOT_PATH}?${query}` });
      await begun(
        pair.say(message),
        pair.say({ ...message, text: 'hello' }),
        pair.say({ ...message, customChannelId: 'c2' }),
        pair.say({ ...message, customMessageId: `${ID}2` }),
        pair.say(message, { cookie }),
        withQuery('is_debug=true'),
      );
      expect(requests()).toBe(6);
      // Only a query that is passed on makes it another one.
      await begun(withQuery('other=1'), withQuery('is_debug=true&other=1'));
      expect(requests()).toBe(6);
      expect(await problemOf(pair.byName({ cookie, channel: 'c2' }))).toMatchObject({ code: 'run_over' });
    },
  );

  test('is named by Idempotency-Key where its body has no id', async () => {
    await start({}, () => [INIT]);
    const id = 'key-of-this-message-1';
    for (let n = 0; n < 2; n++) await begun(pair.say(NO_ID, { headers: [`Idempotency-Key: ${id}`] }));
    await begun(pair.byName({ id }));
    expect(requests()).toBe(1);
  });

  test('takes no slot and no place for a stream', async () => {
    await start({ ...ONE_SLOT, MAX_STREAMS_PER_USER: '1' }, () => [INIT]);
    for (let n = 0; n < 5; n++) await begun(pair.say());
    expect(await problemOf(pair.say({ text: 'new' }))).toMatchObject({
      ...{ code: 'too_many_streams', retryable: 'new message' },
    });
    expect(requests()).toBe(1);
  });

  test('without an id is one run while that goes on, and another one after its end', async () => {
    await start({}, () => [INIT]);
    const clients = await begun(pair.say(NO_ID), pair.say(NO_ID));
    finish();
    for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
    expect(requests()).toBe(1);
    await begun(pair.say(NO_ID));
    expect(requests()).toBe(2);
  });

  test('is told with all others that it was stopped', async () => {
    await start({ ...ONE_SLOT, RATE_MAX_WAIT_MS: '600000' }, ({ requestLine }, socket) => {
      if (!requestLine.includes('/suspend')) return [INIT];
      socket.write(jsonAnswer('404 Not Found', {}));
      return undefined;
    });
    await begun(pair.say({ ...OTHER, customChannelId: 'c2' }));
    const clients = [pair.say(), pair.say()];
    await pair.relay.logLine(({ msg }) => msg === 'run joined');
    expect((await suspend(pair)).status).toBe(200);
    for (const client of clients) expect(await bodyOf(client)).toContain('"code":"stopped"');
    expect(pair.upstream.requests.filter(({ requestLine }) => requestLine.includes('/sse'))).toHaveLength(1);
  });

  test('is refused by the budget each time, if nobody has sent it', async () => {
    await start(ONE_SLOT, () => [INIT]);
    const [taken] = await begun(pair.say(OTHER));
    expect(taken.text()).toMatch(/^RateLimit: "endpoint";r=0;t=\d+\r$/m);
    for (let n = 0; n < 2; n++) {
      const refused = pair.say();
      expect(await problemOf(refused)).toMatchObject({ code: 'rate_limited', retryable: 'new message' });
      expect(refused.text()).toMatch(/^RateLimit-Policy: "endpoint";q=1;w=300\r$/m);
      expect(refused.text()).toMatch(/^Retry-After: \d+\r$/m);
    }
    expect(requests()).toBe(1);
  });

  test('joins nothing if its body is not whole, and gives its place back', async () => {
    await start({ MAX_STREAMS_PER_USER: '1' }, () => [INIT]);
    await begun(pair.say());
    for (let n = 0; n < 20; n++) {
      const half = pair.ask({ body: messageBody().slice(0, -1), headers: ['Connection: close'] });
      expect(await problemOf(half)).toMatchObject({ code: 'invalid_json' });
    }
    await begun(pair.say());
    expect(requests()).toBe(1);
  });

  test('is refused if its operations have been turned off since', async () => {
    const entry = (...operations: string[]) => JSON.stringify({ 'acme/helper': { operations } });
    const BOTS_FILE = join(freshFolder({ 'bots.json': entry('message') }), 'bots.json');
    await start({ BOTS_FILE }, () => [INIT]);
    await begun(pair.say(), pair.say());
    writeFileSync(BOTS_FILE, entry('chat'));
    await pair.relay.logLine(({ msg }) => String(msg).startsWith('reloaded'));
    for (const refused of [pair.say(), pair.say({}, resumed('7')), pair.byName()]) {
      await refused.waitFor('\r\n\r\n');
      expect(statusOf(refused)).toBe(501);
      expect(await problemOf(refused)).toMatchObject({ code: 'operation_not_enabled' });
    }
    expect(requests()).toBe(1);
  });
});

/** How many requests have joined a run, by how. */
async function joined() {
  const text = await pair.relay.metricsText();
  const count = (outcome: string) => total(text, 'bot_relay_runs_joined_total', { outcome });
  return { live: count('live'), ended: count('ended'), resumed: count('resumed') };
}

describe('with Last-Event-ID', () => {
  test('begins behind that event and asks nobody; each request that joins is counted, by how', async () => {
    await start({}, () => [INIT, DELTA, KEPT]);
    const first = pair.say();
    await first.waitFor('message.complete');
    expect(await joined()).toEqual({ live: 0, ended: 0, resumed: 0 });
    const live = await begun(pair.say(), pair.byName());
    const second = pair.say({}, resumed('7'));
    await pair.relay.untilOpen(4);
    expect(await joined()).toEqual({ live: 2, ended: 0, resumed: 1 });
    finish(3);
    const rest = EVENTS.slice(3).join('');
    for (const client of [first, ...live]) expect(await bodyOf(client)).toBe(WHOLE);
    for (const client of [second, pair.say({}, resumed('7')), pair.byName(resumed('7'))])
      expect(await bodyOf(client)).toBe(rest);
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    expect(await joined()).toEqual({ live: 2, ended: 1, resumed: 3 });
    expect(requests()).toBe(1);
  });

  test('goes to the service if the relay does not know that event or that run', async () => {
    await start({}, ({ all }) => (all('last-event-id').length > 0 ? [DELTA] : [INIT, KEPT]));
    await pair.say().waitFor('message.complete');
    await pair.say({}, resumed('8')).waitFor('message.delta');
    expect(pair.upstream.requests[1]?.all('last-event-id')).toEqual(['8']);
    await pair.say({ text: 'other' }, resumed('7')).waitFor('message.delta');
    expect(requests()).toBe(3);
    expect(await problemOf(pair.byName(resumed('8')))).toMatchObject({ code: 'run_not_kept' });
  });
});

/** An event of 32 KiB with its number. */
const large = (n: number) => `id: ${n}\ndata: {"eventType":"x","n":${n},"x":"${'x'.repeat(32_700)}"}\n\n`;
const larges = (count: number) => Array.from({ length: count }, (_, n) => large(n + 1)).join('');

describe('several readers of a run', () => {
  const KEEP = { JOIN_MAX_BYTES: '262144' };

  /** Writes events as fast as the relay reads them. */
  async function write(count: number, from = 1) {
    for (let n = from; n < from + count; n++) {
      pair.emit(large(n));
      await until(() => pair.service.writableLength < 1 << 20);
    }
  }

  test('get the same bytes, at the speed of the fastest; who falls too far behind is ended', async () => {
    await start(KEEP, () => [INIT]);
    const [fast, slow] = [pair.say(), pair.say()];
    await begun(fast, slow);
    slow.socket.pause();
    const ends = jest.spyOn(ServerResponse.prototype, 'end');
    const isEnded = () => ends.mock.calls.some(([bytes]) => String(bytes).includes('reader_too_slow'));
    let count = 0;
    for (; count < 1_000 && !isEnded(); count += 1) await write(1, count + 1);
    ends.mockRestore();
    // It has five seconds for its last bytes.
    slow.socket.resume();
    await write(40, count + 1);
    pair.emit(DONE);
    pair.finish();
    const whole = INIT + larges(count + 40) + DONE;
    expect((await bodyOf(fast)) === whole).toBe(true);
    const [events = '', error] = (await bodyOf(slow)).split('event: error');
    expect(whole.startsWith(events) && events.endsWith('\n\n')).toBe(true);
    expect(error).toMatch(/"code":"reader_too_slow".*"retryable":false/);
    await pair.relay.logLine(({ outcome }) => outcome === 'reader_too_slow');
  });

  test('cannot begin where the stream is not kept any more, but behind an event that is', async () => {
    await start(KEEP, () => [INIT]);
    const [client] = await begun(pair.say());
    await write(40);
    await client.waitFor('"n":40,');
    expect(await pair.relay.runBytes()).toBeLessThan(400_000);
    expect(await problemOf(pair.say())).toMatchObject({ code: 'run_not_kept', retryable: false });
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_not_kept' });
    const later = pair.say({}, resumed('38'));
    await later.waitFor('"n":39,');
    pair.emit(DONE);
    pair.finish();
    expect((await bodyOf(later)) === large(39) + large(40) + DONE).toBe(true);
    expect(requests()).toBe(1);
    // Its beginning is gone for good.
    expect(await problemOf(pair.say())).toMatchObject({ code: 'run_over' });
  });

  test('are 64 at most: the oldest is ended', async () => {
    await start({}, () => [INIT]);
    const [first] = await begun(pair.say());
    const others = await begun(...Array.from({ length: 64 }, () => pair.say()));
    expect(await bodyOf(first)).toMatch(/"code":"too_many_streams".*"retryable":false/);
    finish(4);
    for (const other of others) expect(await bodyOf(other)).toBe(INIT + DONE);
    expect(requests()).toBe(1);
  });

  test('that are all slow hold the service back, and one of them gets all', async () => {
    await start({ JOIN_MAX_BYTES: '65536' }, () => [INIT]);
    const clients = await begun(pair.say(), pair.say());
    for (const { socket } of clients) socket.pause();
    for (let n = 1; n <= 1_000; n++) pair.emit(large(n));
    // After so many round trips, all that was sent could have been read.
    for (let n = 0; n < 50; n++) await bodyOf(pair.byName({ id: 'unknown' }));
    expect(pair.service.writableLength).toBeGreaterThan(0);
    expect(await pair.relay.runBytes()).toBeLessThan(400_000);
    for (const { socket } of clients) socket.resume();
    pair.emit(DONE);
    pair.finish();
    const whole = INIT + larges(1_000) + DONE;
    // Each of them may be the fastest, but one is.
    expect((await Promise.all(clients.map(bodyOf))).some((body) => body === whole)).toBe(true);
  });

  test('of one user are so many at most: the oldest is ended, and its run goes on without it', async () => {
    const ids = Array.from({ length: 6 }, (_, n) => `message-000000000${n}`);
    await start({ MAX_STREAMS_PER_USER: '100', RATE_LIMIT: '100' }, () => [INIT]);
    const say = (n: number) => pair.say({ customMessageId: ids[n] });
    const [first] = await begun(say(0));
    const { service } = pair;
    const oldest = say(0);
    await begun(oldest);
    // Its last client is the oldest reader.
    await pair.leave(first);
    const others = [];
    for (let n = 0; n < MAX_READERS_PER_USER; n += 1) {
      if (n < 5) await begun(say(1 + n));
      expect(oldest.text()).not.toContain('too_many_streams');
      const reader = say(1 + (n % 5));
      others.push(reader);
      // Not all bodies are on their way at once.
      if (n % 32 === 0) await begun(reader);
    }
    expect(await bodyOf(oldest)).toMatch(/"code":"too_many_streams".*"retryable":false/);
    await begun(...others);
    for (const { socket } of others) socket.destroy();
    await begun(say(0));
    expect(service.destroyed).toBe(false);
  });
});

/** As often as an old client sends again. */
const CUTS = 3;
const NUMBERS = EVENTS.map((event) => JSON.parse(event.slice(event.indexOf('{'))).n as number);

/** Lets an old client lose its connection again and again behind so many events, and get the whole answer of one run. */
async function expectWholeAnswer(all: JoinInstances, events: number, open: () => Socket): Promise<void> {
  /** How many requests have joined a run. */
  const joins = () => all.relays.flatMap(({ logs }) => logs.filter(({ msg }) => msg === 'run joined')).length;
  // The service has sent the first event.
  const stream = () => all.streams[events];
  let connections = 0;
  // It passes connections on, and cuts the first ones behind so many events.
  const front = createServer((client) => {
    const relay = open();
    const isCut = ++connections <= CUTS;
    const kept = new RegExp(`^.*?\\r\\n\\r\\n(?:.*?\\n\\n){${events}}`, 's');
    let seen = '';
    client.pipe(relay);
    relay.on('data', (data) => {
      const before = seen.length;
      seen += data.toString('latin1');
      const end = isCut ? kept.exec(seen)?.[0].length : undefined;
      client.write(end === undefined ? data : data.subarray(0, Math.max(0, end - before)));
      if (end !== undefined) client.destroySoon();
    });
    relay.on('close', () => client.destroy());
    client.on('close', () => relay.destroy());
    for (const socket of [client, relay]) socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  try {
    const { port } = front.address() as { port: number };
    const before = joins();
    const received = fieldClient({ url: `http://127.0.0.1:${port}`, cookie: all.cookie, retries: 'always' });
    await until(() => stream() !== undefined);
    stream()?.write(Buffer.concat(EVENTS.slice(1, -1).map(chunk)));
    await until(() => joins() - before === CUTS);
    stream()?.write(Buffer.concat([chunk(DONE), Buffer.from(LAST_CHUNK)]));
    const { data, error } = await received;
    expect(error).toBeUndefined();
    const seen = [1, 2, 3].flatMap(() => NUMBERS.slice(0, events));
    expect(data.map(({ n }) => n)).toEqual([...seen, ...NUMBERS]);
  } finally {
    front.close();
  }
}

describeWithRedis('two instances', () => {
  describeWithNginx('behind nginx', () => {
    test('give an old client the whole answer of one run, wherever its connection is cut', async () => {
      const all = await startJoinInstances(2, {}, () => [INIT]);
      opened.push(all);
      const { relays, upstream, redis } = all;
      const nginx = await startNginx(relays.map(({ port }) => port) as [number, number]);
      const way = { host: '127.0.0.1', port: Number(new URL(nginx.origin).port), servername: 'localhost' };
      const open = () => connect({ ...way, ca: nginx.certificate, ALPNProtocols: ['http/1.1'] });
      for (const events of [0, 1, 2, 3, 4]) {
        await expectWholeAnswer(all, events, open);
        expect(upstream.requests).toHaveLength(events + 1);
        // Its id is too short to be remembered: the next message with it runs.
        await runsEnded(redis);
      }
      const lines = () => [...nginx.log().matchAll(/^\{.*"method":"POST".*"relay":"([^"]*)".*\}$/gm)];
      // A line is written after the end of its answer.
      await until(() => lines().length >= 5 * (CUTS + 1));
      expect(lines()).toHaveLength(5 * (CUTS + 1));
      expect(new Set(lines().map(([, relay]) => relay)).size).toBe(2);
    });
  });
});
