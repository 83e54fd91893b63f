import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, keysWhen, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, DELTA, DONE, EVENTS, INIT, KEPT, messageBody, WHOLE } from '../support/joining.ts';
import { freshFolder, inFrontOf, startProcess, stopProcesses } from '../support/process.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { chunk, LAST_CHUNK, type RawRequest, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { RedisProxy } from '../support/redis-proxy.ts';
import { until } from '../support/until.ts';

jest.setTimeout(30_000);

const ID = 'id: 7';
/** Timers may fire a little early. */
const EARLY_MS = 10;
/** Redis answers later than a command may take. */
const AWAY_MS = 5_000;
const COMMAND_MS = 500;

const isResumption = ({ all }: RawRequest) => all('last-event-id').length > 0;

let all: JoinInstances;
let wire: RedisProxy;
let clients: RawClient[] = [];
beforeEach(async () => {
  all = await startJoinInstances(1, {}, (request, socket) => {
    if (!isResumption(request)) return [INIT];
    socket.write(wholeStream(...EVENTS.slice(3)));
    return undefined;
  });
  wire = all.wires[0] as RedisProxy;
});
afterEach(async () => {
  for (const { socket } of clients) socket.destroy();
  clients = [];
  await stopProcesses();
  // What is late must not be waited for.
  wire.cut();
  wire.slowDown(0);
  await all.close();
});

/** Resolves when the beginning of the stream is stored: then no flight is under way, and Redis has the script. */
async function begun(client: RawClient): Promise<RawClient> {
  await client.waitFor('run.init');
  await until(async () => (await stored('end')) === String(INIT.length));
  return client;
}

/** How long it takes until `part` has come, in ms. */
async function msUntil(client: RawClient, part: string): Promise<number> {
  const from = performance.now();
  await client.waitFor(part);
  return performance.now() - from;
}

/** What is stored of the one run. */
async function stored(field: 'end' | 'cursor'): Promise<unknown> {
  const keys = await keysWhen(all.redis, (keys) => keys.some((key) => key.includes(':run:')));
  return all.redis.command('HGET', keys.find((key) => key.includes(':run:')) as string, field);
}

describeWithRedis('the first id of an answer', () => {
  test('goes down when it is stored, and what stands before it at once', async () => {
    const readers = [await begun(all.say(0)), await begun(all.say(0))];
    wire.slowDown(300);
    all.emit(DELTA + KEPT);
    const from = performance.now();
    for (const reader of readers) {
      await reader.waitFor(DELTA);
      expect(reader.text()).not.toContain(ID);
    }
    for (const reader of readers) await reader.waitFor(ID);
    expect(performance.now() - from).toBeGreaterThan(300 - EARLY_MS);
    expect(await stored('cursor')).not.toBeNull();
    wire.slowDown(0);
    all.emit(...EVENTS.slice(3));
    all.finish();
    for (const reader of readers) expect(await bodyOf(reader)).toBe(WHOLE);
  });

  test('goes down after half a second if Redis does not answer', async () => {
    const reader = await begun(all.say(0));
    wire.slowDown(AWAY_MS);
    all.emit(DELTA, KEPT);
    const ms = await msUntil(reader, ID);
    expect(ms).toBeGreaterThan(COMMAND_MS - EARLY_MS);
    expect(ms).toBeLessThan(AWAY_MS / 2);
    all.emit(...EVENTS.slice(3));
    all.finish();
    expect(await bodyOf(reader)).toBe(WHOLE);
  });

  test('goes down at once when the connection to Redis is lost meanwhile', async () => {
    const reader = await begun(all.say(0));
    wire.slowDown(AWAY_MS);
    all.emit(DELTA, KEPT);
    await reader.waitFor(DELTA);
    expect(reader.text()).not.toContain(ID);
    wire.cut();
    await reader.waitFor(ID);
  });

  test('goes down before the end of the answer, which came meanwhile', async () => {
    const reader = await begun(all.say(0));
    wire.slowDown(300);
    const end = KEPT.indexOf('\n\n');
    // The event is whole only with the bytes that have the end, too.
    all.emit(DELTA, KEPT.slice(0, end));
    await reader.waitFor(DELTA);
    const rest = [KEPT.slice(end) + EVENTS[3], DONE].map(chunk);
    all.streams[0]?.write(Buffer.concat([...rest, Buffer.from(LAST_CHUNK)]));
    expect(await msUntil(reader, ID)).toBeGreaterThan(300 - EARLY_MS);
    expect(await bodyOf(reader)).toBe(WHOLE);
  });

  test('was seen by nobody if the instance is killed before that', async () => {
    const holder = startProcess({
      folder: freshFolder({ 'users.json': '{"users":[]}' }),
      environment: {
        ...inFrontOf(all.upstream.url),
        ...{ PUBLIC_URL: 'http://app.example.com', REDIS_URL: wire.url, JOIN: 'on' },
      },
    });
    const port = await holder.listening();
    await holder.waitFor(/redis ready/);
    const message = { cookie: all.cookie, body: messageBody(), headers: ['Connection: close'] };
    const reader = rawClient(port, rawMessage(message));
    clients.push(reader);
    await begun(reader);
    wire.slowDown(COMMAND_MS - 100);
    all.emit(DELTA, KEPT);
    await until(async () => (await stored('cursor')) !== null);
    holder.signal('SIGKILL');
    await reader.closed;
    expect(reader.text()).toContain(DELTA);
    expect(reader.text()).not.toContain(ID);
    wire.slowDown(0);
    expect(await bodyOf(all.say(0))).toBe(WHOLE);
    expect(all.upstream.requests.map(isResumption)).toEqual([false, true]);
  });
});
