import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import type { JoinableOptions, RunStore } from '../../src/join/joinable-runs.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { Run } from '../../src/join/run.ts';
import { runCodec } from '../../src/join/run-codec.ts';
import type { Outlet, OutletSource } from '../../src/join/run-outlet.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { type RedisProxy, startRedisProxy } from '../support/redis-proxy.ts';
import { runSealer } from '../support/run-sealer.ts';
import { sleep } from '../support/sleep.ts';
import { until } from '../support/until.ts';

jest.setTimeout(30_000);

const codec = runCodec(runSealer);
const MAX_BYTES = 65_536;
const EVENT = 'id: 1\ndata: 1\n\n';

let server: RedisServer;
let wire: RedisProxy;
let redis: Redis;
let store: RunStore;
let moves: string[];
beforeEach(async () => {
  server = await startRedis();
  wire = await startRedisProxy(server.url);
  redis = await connected(wire.url);
  store = redisRuns(redis, runSealer);
  moves = [];
});
afterEach(async () => {
  await store.close();
  redis.close();
  wire.close();
  await server.stop();
});

/** A run that is carried here, one who reads it here, and what another instance does with it. */
interface Carried {
  readonly run: Run;
  readonly reader: ReturnType<typeof reader>;
  /** Writes bytes, after which the stream is inside an event, or not. */
  write(text: string, isInside: boolean): void;
  /** Writes an event, after which the stream can be resumed. */
  writeId(text: string): void;
  /** Another instance takes the run, and stores its next bytes. */
  take(...parts: readonly string[]): Promise<void>;
  /** Resolves once this instance has read all that the other has stored before. */
  read(): Promise<void>;
  /** The other one ends the run. */
  end(problem?: Problem): Promise<void>;
}

/** Takes a stream, and tells what it has got and how it has ended. */
function reader() {
  const ended = Promise.withResolvers<readonly [code: string, isCut: boolean] | 'complete'>();
  let got = '';
  let source: OutletSource | undefined;
  const outlet: Outlet = {
    ...{ isFull: () => false, hasBegun: () => true },
    open(own) {
      source = own;
    },
    write(bytes) {
      got += bytes.toString();
    },
    complete: () => ended.resolve('complete'),
    endEarly: ({ code }, isCut) => ended.resolve([code, isCut]),
  };
  return { outlet, got: () => got, mayBeat: () => source?.mayBeat(), ended: ended.promise };
}

/** Begins a run, whose first event is stored when this resolves. */
async function carried(): Promise<Carried> {
  const options: JoinableOptions = {
    times: { keepMs: 0, rememberMs: 5_000, graceMs: 0 },
    ...{ maxBytes: MAX_BYTES, maxExecutionMs: 1_000, budget: heldBytes(1 << 24) },
    onLeft() {},
    onMoved: (_run, outcome) => void moves.push(outcome),
  };
  const name = { conversation: 'c', message: 'm', key: 'k', isKept: true };
  const own = reader();
  const run = await store.open(options).enter(name, {
    ...{ lastEventId: undefined, requestId: 'r', progress: { hasLeft: true, mayHaveStarted: true } },
    join: () => undefined,
    begin(begun) {
      const seat = begun.sit({ stop: new AbortController(), holdRun: () => () => {} });
      void seat.read(own.outlet, 0);
      return begun;
    },
  });
  if (!run) throw new Error('no run has begun');
  let isIn = false;
  let place: string | undefined;
  run.begin(new Map());
  run.stream.outlet.open({
    ...{ full() {}, drained() {}, mayBeat: () => !isIn, closed() {}, resumeState: () => place },
  });
  const write = (text: string, isInside: boolean) => {
    isIn = isInside;
    run.stream.outlet.write(Buffer.from(text), isInside);
  };
  write(EVENT, false);
  const [key = ''] = (await server.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
  while ((await server.command('HGET', key, 'end')) !== String(EVENT.length)) await sleep(20);
  const writeId = (text: string) => {
    place = text;
    write(text, false);
  };
  return { run, reader: own, write, writeId, ...other(key) };
}

/** What another instance does with the run of this key. */
function other(key: string): Pick<Carried, 'take' | 'read' | 'end'> {
  const id = key.split(':').at(-1) ?? '';
  const log = `bot-relay:{runs}:log:${id}`;
  let at = EVENT.length;
  return {
    async take(...parts) {
      await server.command('HSET', key, 'token', 'of another');
      for (const text of parts) {
        const data = codec.sealBytes(Buffer.from(text), id, at);
        await server.command('XADD', log, '*', 'o', String(at), 'i', '', 'd', data);
        at += text.length;
        await server.command('HSET', key, 'end', String(at));
      }
    },
    async read() {
      const looks = new Set<unknown>([null]);
      // A look begins after the one before it.
      while (looks.size < 3) {
        looks.add(await server.command('HGET', key, 'followed'));
        await sleep(20);
      }
    },
    async end(problem) {
      const progress = { hasLeft: true, mayHaveStarted: true };
      const end = { problem, isCut: false, at, isDropped: false, progress, headers: [] };
      await server.command('XADD', log, '*', 'e', codec.sealEnd(end, id));
      await server.command('HSET', key, 'state', 'over');
    },
  };
}

const BROKEN = new Problem('upstream_stream_broken', 'x');

describeWithRedis(
  'a run that another instance has taken, of which more went down here than is stored',
  () => {
    test('ends truthfully for those who read it here, if nobody knows any more what that was', async () => {
      const { reader, write, take, end } = await carried();
      wire.cut();
      const event = `data: ${'x'.repeat(20_000)}\n\n`;
      let written = EVENT.length;
      // More than may wait to be stored.
      for (; written < MAX_BYTES + (1 << 20) + EVENT.length; written += event.length) write(event, false);
      await take(': other bytes than before\n', event.repeat(Math.ceil(written / event.length)));
      await end();
      wire.mend();
      expect(await reader.ended).toEqual(['answer_lost', false]);
      expect(reader.got()).toHaveLength(written);
      expect(moves).toEqual(['lost']);
    });

    test('is cut for them then, if that was inside an event', async () => {
      const { reader, write, take } = await carried();
      wire.cut();
      write('data: ', true);
      for (let n = 0; n < 60; n++) write('x'.repeat(20_000), true);
      await take();
      wire.mend();
      expect(await reader.ended).toEqual(['answer_lost', true]);
    });

    test('has no heartbeat and no error event inside an event', async () => {
      const { reader, write, take, read, end } = await carried();
      wire.cut();
      write('id: 2\nda', true);
      await take();
      wire.mend();
      await read();
      expect(reader.mayBeat()).toBe(false);
      await end(BROKEN);
      expect(await reader.ended).toEqual(['upstream_stream_broken', true]);
      expect(reader.got()).toBe(`${EVENT}id: 2\nda`);
    });

    test('lets down what waits for its flight, and leaves the end to the other instance', async () => {
      const { run, reader, writeId, take, end } = await carried();
      const event = 'id: 2\ndata: 2\n\n';
      await take(event, 'data: 3\n\n');
      writeId(event);
      run.stream.outlet.complete();
      expect(reader.got()).toBe(EVENT);
      await until(() => reader.got().startsWith(EVENT + event));
      await end(BROKEN);
      expect(await reader.ended).toEqual(['upstream_stream_broken', false]);
      expect(reader.got()).toBe(`${EVENT}${event}data: 3\n\n`);
      expect(moves).toEqual(['lost']);
    });

    test('goes on where it was inside an event, and may have heartbeats after that', async () => {
      const { reader, write, take, end } = await carried();
      wire.cut();
      write('id: 2\nda', true);
      const rest = 'id: 2\ndata: 2\n\n';
      await take(rest);
      wire.mend();
      await until(() => reader.got() === EVENT + rest);
      expect(reader.mayBeat()).toBe(true);
      await end(BROKEN);
      expect(await reader.ended).toEqual(['upstream_stream_broken', false]);
    });
  },
);
