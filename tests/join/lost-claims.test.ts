import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import type { JoinableRuns, RunStore } from '../../src/join/joinable-runs.ts';
import { lostClaims } from '../../src/join/lost-claims.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { Batch } from '../../src/join/run-calls.ts';
import { ENTER } from '../../src/join/run-lua.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { runsEnded } from '../support/join-instances.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';
import { until } from '../support/until.ts';

jest.setTimeout(30_000);

const AWAY = new Problem('session_store_unavailable', 'Redis is away.');

describeWithRedis('a claim whose answer is lost', () => {
  let server: RedisServer;
  let redis: Redis;
  let stores: RunStore[];
  beforeEach(async () => {
    server = await startRedis();
    redis = await connected(server.url);
    stores = [];
  });
  afterEach(async () => {
    for (const store of stores) await store.close();
    redis.close();
    await server.stop();
  });

  /** The runs of one instance, with its own way to Redis. */
  function open(script: Redis['script']): JoinableRuns {
    const store = redisRuns({ ...redis, script }, runSealer);
    stores.push(store);
    return store.open({
      times: { keepMs: 0, rememberMs: 60_000, graceMs: 0 },
      ...{ maxBytes: 65_536, maxExecutionMs: 1_000, budget: heldBytes(1 << 20) },
      onLeft() {},
      onMoved() {},
    });
  }

  const enter = (runs: JoinableRuns) =>
    runs.enter(
      { conversation: 'c', message: 'm', key: 'k', isKept: true },
      {
        ...{ lastEventId: undefined, requestId: 'r', progress: { hasLeft: false, mayHaveStarted: false } },
        join: () => 'joined',
        begin(run) {
          run.over();
          return 'begun';
        },
      },
    );

  test('is given up as soon as Redis is back, so that the message can be sent', async () => {
    let isAway = true;
    let failed = 0;
    const runs = open((lua) => {
      const run = redis.script(lua);
      return async (keys, args) => {
        // The claim arrives, but nothing comes back.
        const answer = isAway && lua !== ENTER ? undefined : await run(keys, args);
        if (!isAway) return answer;
        failed++;
        throw AWAY;
      };
    });
    await expect(enter(runs)).rejects.toBe(AWAY);
    await until(() => failed > 2);
    const [key = ''] = (await server.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    expect(await server.command('HGET', key, 'state')).toBe('live');
    isAway = false;
    await runsEnded(server);
    expect(await enter(open(redis.script))).toBe('begun');
  });
});

describe('claims whose answers are lost', () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  function start() {
    const flights: (readonly Batch[])[] = [];
    const state = { isAway: true };
    const claims = lostClaims(
      {
        async flush(batches) {
          flights.push(batches);
          if (state.isAway) throw AWAY;
          return batches.map(() => ['gone', 0, 0] as const);
        },
      },
      { sealEnd: () => 'sealed' },
    );
    const add = (n: number) => claims.add({ id: `r${n}`, token: 't', requestId: 'r' }, AWAY);
    return { flights, state, claims, add };
  }

  test('are freed some at a time, and Redis is asked only until it has answered', async () => {
    const { flights, state, add } = start();
    for (let n = 0; n < 250; n++) add(n);
    await jest.advanceTimersByTimeAsync(1_000);
    state.isAway = false;
    flights.length = 0;
    await jest.advanceTimersByTimeAsync(500);
    expect(flights.map((batches) => batches.length)).toEqual([100, 100, 50]);
    expect(new Set(flights.flat().map(({ id }) => id)).size).toBe(250);
    expect(jest.getTimerCount()).toBe(0);
  });

  test('are given up after a minute', async () => {
    const { flights, add } = start();
    add(1);
    await jest.advanceTimersByTimeAsync(55_000);
    expect(flights.length).toBeGreaterThan(100);
    expect(jest.getTimerCount()).toBe(1);
    await jest.advanceTimersByTimeAsync(10_000);
    expect(jest.getTimerCount()).toBe(0);
    expect(flights.length).toBeLessThan(125);
  });

  test('are given up when the runs are closed', async () => {
    const { flights, claims, add } = start();
    add(1);
    await jest.advanceTimersByTimeAsync(1_000);
    claims.close();
    flights.length = 0;
    await jest.advanceTimersByTimeAsync(10_000);
    expect(flights).toEqual([]);
    expect(jest.getTimerCount()).toBe(0);
  });
});
