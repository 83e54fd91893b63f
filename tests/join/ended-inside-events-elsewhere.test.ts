import { afterEach, expect, jest, test } from '@jest/globals';
import type { JoinableOptions, JoinableRuns, RunStore } from '../../src/join/joinable-runs.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { Run } from '../../src/join/run.ts';
import type { Outlet, OutletSource } from '../../src/join/run-outlet.ts';
import type { Seat } from '../../src/join/run-seats.ts';
import type { FoundRun } from '../../src/join/runs.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { call } from '../support/call.ts';
import { type JoinInstances, keysWhen, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, DELTA, DONE, INIT } from '../support/joining.ts';
import { dechunk, type RawClient } from '../support/raw-client.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import type { TestRelay } from '../support/relay.ts';
import { runSealer } from '../support/run-sealer.ts';
import { until } from '../support/until.ts';

jest.setTimeout(40_000);

/** More than is held until it is whole. */
const HALF = `data: ${'x'.repeat(2_000)}`;
const REST = '\n\n';

describeWithRedis('a reader at another instance than the one that carries its run', () => {
  let all: JoinInstances;
  afterEach(() => all.close());

  const relay = (at: number) => all.relays[at] as TestRelay;
  const hasGot = (client: RawClient, body: string) => until(() => dechunk(client.text()).body === body);

  /** A run with a client where it is carried, which has another session than so many readers elsewhere. */
  async function readElsewhere(readers: number, begins: readonly string[]) {
    all = await startJoinInstances(2, { MAX_HELD_EVENT_BYTES: '1024' }, () => begins);
    const own = all.say(0);
    await hasGot(own, begins.join(''));
    const cookie = await relay(1).signIn();
    const clients = Array.from({ length: readers }, () => all.sayAs(cookie, 1));
    for (const client of clients) await hasGot(client, begins.join(''));
    return { own, cookie, clients };
  }

  /** What ends those readers. */
  const ENDS = {
    session_ended: async (cookie: string) => {
      await call(relay(1).port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
    },
    draining: () => relay(1).close(),
  };

  test.each([
    ['session_ended', 'alone', 1],
    ['session_ended', 'with another', 2],
    ['draining', 'alone', 1],
    ['draining', 'with another', 2],
  ] as const)(
    'is cut by %s inside an event, if it reads %s, and the run goes on',
    async (end, _how, readers) => {
      const { own, cookie, clients } = await readElsewhere(readers, [INIT, HALF]);
      await ENDS[end](cookie);
      for (const client of clients) {
        await client.closed;
        expect(dechunk(client.text())).toMatchObject({ body: INIT + HALF, complete: false });
      }
      all.emit(REST, DONE);
      all.finish();
      expect(await bodyOf(own)).toBe(INIT + HALF + REST + DONE);
    },
  );

  test.each([
    ['session_ended', 'alone', 1],
    ['draining', 'with another', 2],
  ] as const)('is told of %s behind such an event, if it reads %s', async (end, _how, readers) => {
    const { cookie, clients } = await readElsewhere(readers, [INIT, HALF, REST, DELTA]);
    await ENDS[end](cookie);
    for (const client of clients) {
      await client.closed;
      const { body, complete } = dechunk(client.text());
      expect(body.startsWith(`${INIT + HALF + REST + DELTA}event: error\n`)).toBe(true);
      expect([complete, body.includes(`"code":"${end}"`)]).toEqual([true, true]);
    }
  });
});

const MAX_BYTES = 65_536;
const OPTIONS: JoinableOptions = {
  times: { keepMs: 0, rememberMs: 5_000, graceMs: 0 },
  ...{ maxBytes: MAX_BYTES, maxExecutionMs: 60_000, budget: heldBytes(1 << 24) },
  onLeft() {},
  onMoved() {},
};

describeWithRedis('a reader at another instance that falls behind what is kept', () => {
  let server: RedisServer;
  let redis: Redis;
  let stores: RunStore[];
  afterEach(async () => {
    for (const store of stores) await store.close();
    redis.close();
    await server.stop();
  });

  async function start() {
    server = await startRedis();
    redis = await connected(server.url);
    stores = [redisRuns(redis, runSealer), redisRuns(redis, runSealer)];
    return stores.map((store) => store.open(OPTIONS)) as [JoinableRuns, JoinableRuns];
  }

  /** Enters the run of the one message that there is. */
  async function enter(runs: JoinableRuns): Promise<{ readonly run: Run; readonly seat: Seat }> {
    const sit = (run: Run) => ({
      run,
      seat: run.sit({ stop: new AbortController(), holdRun: () => () => {} }),
    });
    const entered = await runs.enter(
      { conversation: 'c', message: 'm', key: 'a', isKept: true },
      {
        ...{ lastEventId: undefined, requestId: 'r', progress: { hasLeft: true, mayHaveStarted: true } },
        ...{ begin: sit, join: ({ run }: FoundRun) => sit(run) },
      },
    );
    return entered as NonNullable<typeof entered>;
  }

  /** Reads at a seat. It takes the first bytes only, if it `isSlow`. */
  async function read({ seat }: { readonly seat: Seat }, isSlow: boolean) {
    await seat.begun;
    let source: OutletSource | undefined;
    const reader = { bytes: 0, end: undefined as unknown, drain: () => source?.drained() };
    const outlet: Outlet = {
      open(from) {
        source = from;
      },
      write(bytes) {
        reader.bytes += bytes.length;
        if (isSlow) source?.full();
      },
      ...{ isFull: () => false, hasBegun: () => true, complete() {} },
      endEarly({ code }, isCut) {
        reader.end = { code, isCut };
      },
    };
    void seat.read(outlet, 0);
    return reader;
  }

  /** Until Redis does not have the beginning of the stream any more. */
  async function trimmed() {
    const keys = await keysWhen(server, (found) => found.some((key) => key.includes(':run:')));
    const key = keys.find((one) => one.includes(':run:')) ?? '';
    await until(async () => Number(await server.command('HGET', key, 'first')) > 0);
  }

  test.each([
    ['is cut', 'inside an event, beside a faster one', true, true],
    ['is cut', 'inside an event, alone there', true, false],
    ['is told', 'between events, beside a faster one', false, true],
    ['is told', 'between events, alone there', false, false],
  ] as const)('%s %s', async (_end, _where, isInside, isBeside) => {
    const [here, elsewhere] = await start();
    const { run, seat } = await enter(here);
    run.begin(new Map());
    run.stream.outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
    const own = await read({ seat }, false);
    const slow = await read(await enter(elsewhere), true);
    const fast = isBeside ? await read(await enter(elsewhere), false) : undefined;
    const first = isInside ? 'data: x' : 'data: 1\n\n';
    const rest = Buffer.alloc(8_192, isInside ? 'x' : `data: ${'x'.repeat(56)}\n\n`);
    run.stream.outlet.write(Buffer.from(first), isInside);
    await until(() => slow.bytes > 0 && (!fast || fast.bytes > 0));
    for (let written = 0; written < 3 * MAX_BYTES; written += rest.length) {
      run.stream.outlet.write(rest, isInside);
      // Who reads along here gets it before more comes.
      await until(() => !fast || fast.bytes === own.bytes);
    }
    if (!fast) {
      await trimmed();
      slow.drain();
    }
    await until(() => slow.end !== undefined);
    expect(slow.end).toEqual({ code: 'reader_too_slow', isCut: isInside });
    expect(slow.bytes).toBe(first.length);
    run.over();
  });
});
