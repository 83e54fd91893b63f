import { ServerResponse } from 'node:http';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { MAX_READERS_PER_USER } from '../../src/runs/run-reader.ts';
import { bodyOf, EVENTS, INIT, type JoinPair, problemOf, startJoinPair } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';

let pair: JoinPair;
afterEach(() => pair.close());

/** An event of 32 KiB with its number. */
const large = (n: number) => `id: ${n}\ndata: {"eventType":"x","n":${n},"x":"${'x'.repeat(32_700)}"}\n\n`;
const last = EVENTS.at(-1) as string;

async function start(environment: Record<string, string> = {}) {
  pair = await startJoinPair({ JOIN_MAX_BYTES: '262144', ...environment }, () => [INIT]);
}

/** Writes events as fast as the relay reads them. */
async function write(count: number, from = 1) {
  for (let n = from; n < from + count; n++) {
    pair.emit(large(n));
    await until(() => pair.service.writableLength < 1 << 20);
  }
}

/** Resolves after so many round trips that all that was sent could have been read. */
async function full() {
  for (let n = 0; n < 50; n++) await bodyOf(pair.byName({ id: 'unknown' }));
}

describe('several readers of a run', () => {
  test('get the same bytes, at the speed of the fastest; who falls too far behind is ended', async () => {
    await start();
    const [fast, slow] = [pair.say(), pair.say()];
    for (const client of [fast, slow]) await client.waitFor('run.init');
    slow.socket.pause();
    const ends = jest.spyOn(ServerResponse.prototype, 'end');
    const isEnded = () => ends.mock.calls.some(([bytes]) => String(bytes).includes('reader_too_slow'));
    let count = 0;
    for (; count < 1_000 && !isEnded(); count += 1) await write(1, count + 1);
    ends.mockRestore();
    // It has five seconds for its last bytes.
    slow.socket.resume();
    await write(40, count + 1);
    count += 40;
    pair.emit(last);
    pair.finish();
    const whole = INIT + Array.from({ length: count }, (_, n) => large(n + 1)).join('') + last;
    expect((await bodyOf(fast)) === whole).toBe(true);
    const ended = await bodyOf(slow);
    const [events = '', error] = ended.split('event: error');
    expect(whole.startsWith(events)).toBe(true);
    expect(events.endsWith('\n\n')).toBe(true);
    expect(error).toContain('"code":"reader_too_slow"');
    expect(error).toContain('"retryable":false');
    await pair.relay.logLine(({ outcome }) => outcome === 'reader_too_slow');
  });

  test('cannot begin where the stream is not kept any more, but behind an event that is', async () => {
    await start();
    const client = pair.say();
    await client.waitFor('run.init');
    await write(40);
    await client.waitFor('"n":40,');
    expect(pair.relay.runs.bytes()).toBeLessThan(400_000);
    expect(await problemOf(pair.say())).toMatchObject({ code: 'run_not_kept', retryable: false });
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_not_kept' });
    const resumed = pair.say({}, { headers: ['Last-Event-ID: 38'] });
    await resumed.waitFor('"n":39,');
    pair.emit(last);
    pair.finish();
    expect((await bodyOf(resumed)) === large(39) + large(40) + last).toBe(true);
    expect(pair.upstream.requests).toHaveLength(1);
    // Its beginning is gone for good.
    expect(await problemOf(pair.say())).toMatchObject({ code: 'run_over' });
  });

  test('are 64 at most: the oldest is ended', async () => {
    await start();
    const first = pair.say();
    await first.waitFor('run.init');
    const others = Array.from({ length: 64 }, () => pair.say());
    for (const other of others) await other.waitFor('run.init');
    const body = await bodyOf(first);
    expect(body).toContain('"code":"too_many_streams"');
    expect(body).toContain('"retryable":false');
    pair.emit(last);
    pair.finish();
    for (const other of others) expect(await bodyOf(other)).toBe(INIT + last);
    expect(pair.upstream.requests).toHaveLength(1);
  });
});

test.each([1, 2])(
  '%i readers that are slow hold the service back, and one of them gets all',
  async (count) => {
    await start({ JOIN_MAX_BYTES: '65536' });
    const clients = Array.from({ length: count }, () => pair.say());
    for (const client of clients) {
      await client.waitFor('run.init');
      client.socket.pause();
    }
    for (let n = 1; n <= 1_000; n++) pair.emit(large(n));
    await full();
    expect(pair.service.writableLength).toBeGreaterThan(0);
    expect(pair.relay.runs.bytes()).toBeLessThan(400_000);
    for (const { socket } of clients) socket.resume();
    pair.emit(last);
    pair.finish();
    const whole = INIT + Array.from({ length: 1_000 }, (_, n) => large(n + 1)).join('') + last;
    const bodies = await Promise.all(clients.map(bodyOf));
    // Each of them may be the fastest, but one is.
    expect(bodies.some((body) => body === whole)).toBe(true);
  },
);

test('the oldest reader of a user is ended, and its run goes on without it', async () => {
  const ids = Array.from({ length: 6 }, (_, n) => `message-000000000${n}`);
  await start({ MAX_STREAMS_PER_USER: '100', RATE_LIMIT: '100', JOIN_GRACE_MS: '30000' });
  const say = (customMessageId?: string) => pair.say({ customMessageId });
  const first = say(ids[0]);
  await first.waitFor('run.init');
  const { service } = pair;
  const oldest = say(ids[0]);
  await oldest.waitFor('run.init');
  // Its last client is the oldest reader.
  first.socket.destroy();
  await until(() => pair.relay.open.count() === 1);
  const others = [];
  for (let n = 0; n < MAX_READERS_PER_USER; n += 1) {
    const id = ids[1 + (n % 5)];
    if (n < 5) await say(id).waitFor('run.init');
    const reader = say(id);
    others.push(reader);
    expect(oldest.text()).not.toContain('too_many_streams');
    // Not all bodies are on their way at once.
    if (n % 32 === 0) await reader.waitFor('run.init');
  }
  const body = await bodyOf(oldest);
  expect(body).toContain('"code":"too_many_streams"');
  expect(body).toContain('"retryable":false');
  for (const other of others) await other.waitFor('run.init');
  for (const { socket } of others) socket.destroy();
  const back = say(ids[0]);
  await back.waitFor('run.init');
  expect(service.destroyed).toBe(false);
});
