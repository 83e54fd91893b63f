import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { type Batch, type RunBounds, type RunCalls, runCalls } from '../../src/join/run-calls.ts';
import { runCodec } from '../../src/join/run-codec.ts';
import { ENTER, FLUSH, FORGET, NEWEST, READ, SESSION_ENDED, TAKE_OVER } from '../../src/join/run-lua.ts';
import type { RunName } from '../../src/join/run-name.ts';
import { type RunParts, runParts } from '../../src/join/run-parts.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';

jest.setTimeout(30_000);

let server: RedisServer;
let redis: Redis;
beforeEach(async () => {
  server = await startRedis();
  redis = await connected(server.url);
});
afterEach(async () => {
  redis.close();
  await server.stop();
});

const BOUNDS: RunBounds & { readonly parts: RunParts } = {
  parts: runParts(false),
  ...{ keepMs: 20_000, rememberMs: 80_000_000, lifeMs: 600_000 },
  ...{ maxBytes: 1 << 20, maxBytesInAll: 10_000, maxNames: 100_000 },
};

const CODEC = runCodec(runSealer);

function calls(): RunCalls {
  const scripts = {
    ...{ enter: redis.script(ENTER), newest: redis.script(NEWEST), forget: redis.script(FORGET) },
    ...{ flush: redis.script(FLUSH), read: redis.script(READ), takeOver: redis.script(TAKE_OVER) },
    sessionEnded: redis.script(SESSION_ENDED),
  };
  return runCalls(scripts, BOUNDS, CODEC);
}

const nameOf = (n: number, changes: Partial<RunName> = {}): RunName => ({
  ...{ conversation: 'c', message: `m${n}`, key: `k${n}`, isKept: true },
  ...changes,
});
const messageOf = (message: string) => ({ conversation: 'c', message });
const claimOf = (n: number) => ({ id: `r${n}`, token: `t${n}`, requestId: `request-of-${n}` });
const batch = (n: number, changes: Partial<Batch> = {}): Batch => ({
  ...{ id: `r${n}`, token: `t${n}`, offset: 0, length: 0, isInside: false, data: '' },
  ...{ head: '', hold: '', cursor: '', end: '', state: '' },
  ...changes,
});
const ended = (n: number) => batch(n, { end: 'E', state: 'kept' });
const key = (rest: string) => `bot-relay:{runs}:${rest}`;
const ttl = async (rest: string) => Number(await server.command('PTTL', key(rest)));
const stored = (length: number) => ({ length, data: 'x'.repeat(length) });

describeWithRedis('what is stored of a run', () => {
  test('goes long before its name if nobody ends it', async () => {
    const { enter, flush } = calls();
    await enter(nameOf(1), claimOf(1));
    await flush([batch(1, { ...stored(10), hold: 'H', cursor: 'C' })]);
    for (const rest of ['run:r1', 'log:r1', 'sizes', 'logs']) {
      expect(await ttl(rest)).toBeGreaterThan(0);
      expect(await ttl(rest)).toBeLessThanOrEqual(BOUNDS.lifeMs);
    }
    expect(await ttl('conversation:c')).toBeGreaterThan(BOUNDS.rememberMs);
    await server.command('DEL', key('run:r1'), key('log:r1'));
    expect(await enter(nameOf(1), claimOf(2))).toMatchObject({ state: 'over' });
  });

  test('lives on while it goes on, though not each batch extends that', async () => {
    const { enter, flush } = calls();
    await enter(nameOf(1), claimOf(1));
    const lives = ['run:r1', 'log:r1', 'sizes', 'logs'];
    await flush([batch(1, stored(10))]);
    const almostOver = () => Promise.all(lives.map((rest) => server.command('PEXPIRE', key(rest), '9000')));
    await almostOver();
    await flush([batch(1, { ...stored(10), offset: 10 })]);
    for (const rest of lives) expect(await ttl(rest)).toBeLessThanOrEqual(9_000);
    const renewed = Number(await server.command('HGET', key('run:r1'), 'renewed'));
    await server.command('HSET', key('run:r1'), 'renewed', String(renewed - BOUNDS.lifeMs / 20));
    await flush([batch(1, { ...stored(10), offset: 20 })]);
    for (const rest of lives) expect(await ttl(rest)).toBeGreaterThan(BOUNDS.lifeMs - 10_000);
    // The lease of a silent run does so each time.
    await almostOver();
    await flush([batch(1, { offset: 30 })]);
    expect(await ttl('run:r1')).toBeGreaterThan(BOUNDS.lifeMs - 10_000);
  });

  test('makes room if its instance has been lost for a minute, and not before', async () => {
    const { enter, flush, newest } = calls();
    for (const n of [1, 2, 3]) await enter(nameOf(n), claimOf(n));
    await flush([batch(1, { ...stored(6_000), hold: 'H', cursor: 'C' })]);
    expect(await flush([batch(2, stored(6_000))])).toEqual([['closed', 0, 0]]);
    const [seconds] = (await server.command('TIME')) as [string];
    await server.command('HSET', key('run:r1'), 'lease', `${Number(seconds) - 61}000`);
    expect(await flush([batch(3, stored(6_000))])).toEqual([['written', 0, 0]]);
    // Nobody looks for the rest of it.
    expect(await newest(messageOf('m1'))).toMatchObject({ state: 'live', first: -1 });
    expect(await server.command('HMGET', key('run:r1'), 'hold', 'cursor')).toEqual([null, null]);
  });

  test("does not hasten the end of a newer run's message id", async () => {
    const { enter, flush, newest } = calls();
    for (const n of [1, 2]) await enter(nameOf(n, { message: 'm' }), claimOf(n));
    await flush([ended(1)]);
    expect(await ttl('message:m')).toBeGreaterThan(BOUNDS.rememberMs);
    expect(await newest(messageOf('m'))).toMatchObject({ id: 'r2', state: 'live' });
  });
});

describeWithRedis('the id of the request that has begun a run', () => {
  test('is told to those who join the run, and nobody reads it in Redis', async () => {
    const { enter, newest } = calls();
    await enter(nameOf(1), claimOf(1));
    expect(JSON.stringify(await server.command('HGETALL', key('run:r1')))).not.toContain('request-of');
    for (const told of [await enter(nameOf(1), undefined), await newest(messageOf('m1'))]) {
      expect(told).toMatchObject({ id: 'r1', requestId: 'request-of-1' });
    }
  });
});

describeWithRedis('a message that is not kept, and whose instance was lost', () => {
  test.each([
    ['may have left late: its name stays for a moment', '', 'over'],
    ['had its stream: its name is free after that', 'C', 'unknown'],
  ])('%s', async (_what, cursor, state) => {
    const { enter, flush, takeOver } = calls();
    const name = nameOf(1, { isKept: false });
    await enter(name, claimOf(1));
    await flush([batch(1, { hold: 'H', cursor })]);
    await server.command('HSET', key('run:r1'), 'lease', '0');
    expect(await takeOver('r1', 'other')).toMatchObject({ name, cursor });
    await flush([batch(1, { token: 'other', end: 'E', state: 'over' })]);
    expect(await enter(name, undefined)).toMatchObject({ state });
    expect(await ttl('conversation:c')).toBeLessThanOrEqual(60_000);
  });
});

describeWithRedis('a run whose log is closed, and whose instance was lost', () => {
  /** Begins the run `r1` and closes its log; its lease was over `leaseMs` ago. */
  async function begin({ enter, flush }: RunCalls, name: RunName, leaseMs: number): Promise<void> {
    await enter(name, claimOf(1));
    await flush([batch(1, { ...stored(10), hold: 'H', cursor: 'C' }), batch(1, { offset: -1 })]);
    const [seconds] = (await server.command('TIME')) as [string];
    await server.command('HSET', key('run:r1'), 'lease', String(Number(seconds) * 1000 - leaseMs));
  }
  const state = () => server.command('HGET', key('run:r1'), 'state');

  test('is over for the next one who asks for it, once nobody has carried it for a minute', async () => {
    const all = calls();
    await begin(all, nameOf(1), 61_000);
    expect(await all.enter(nameOf(1), claimOf(2))).toMatchObject({ state: 'over' });
    expect(await state()).toBe('over');
    expect(await ttl('run:r1')).toBeLessThanOrEqual(10_000);
    // Its name is remembered as after each end.
    expect(await all.enter(nameOf(1), claimOf(2))).toMatchObject({ state: 'over' });
    expect(await ttl('conversation:c')).toBeGreaterThan(BOUNDS.rememberMs - 10_000);
    expect(await ttl('conversation:c')).toBeLessThanOrEqual(BOUNDS.rememberMs);
    expect(await all.newest(messageOf('m1'))).toMatchObject({ state: 'over' });
    expect(await all.flush([batch(1, { offset: 10 })])).toEqual([['lost', 0, 0]]);
  });

  test('leaves its name free after one more minute, if that is not kept', async () => {
    const all = calls();
    const name = nameOf(1, { isKept: false });
    await begin(all, name, 61_000);
    expect(await all.enter(name, claimOf(2))).toMatchObject({ state: 'over' });
    expect(await ttl('conversation:c')).toBeGreaterThan(50_000);
    expect(await ttl('conversation:c')).toBeLessThanOrEqual(60_000);
  });

  test('goes on until then, and longer if its instance is back and asks for it', async () => {
    const all = calls();
    await begin(all, nameOf(1), 30_000);
    const live = { state: 'live', id: 'r1', first: -1 };
    expect(await all.enter(nameOf(1), claimOf(2))).toMatchObject(live);
    await begin(all, nameOf(1), 61_000);
    expect(await all.enter(nameOf(1), claimOf(1))).toMatchObject(live);
    expect(await state()).toBe('live');
  });
});

describeWithRedis('a conversation with many names', () => {
  test('is forgotten at once, and what is left of it goes bit by bit', async () => {
    const { enter, flush, forget, newest } = calls();
    const count = 350;
    const all = Array.from({ length: count }, (_, n) => n);
    await Promise.all(all.map((n) => enter(nameOf(n), claimOf(n))));
    await flush(all.slice(1).map((n) => batch(n, { ...stored(n === 1 ? 1 : 0), end: 'E', state: 'kept' })));
    await forget('c', 'k1');
    const names = async () => Number(await server.command('ZCARD', key('names')));
    expect(await names()).toBeGreaterThan(count - 150);
    expect(await enter(nameOf(1), undefined)).toMatchObject({ state: 'kept' });
    for (const n of [0, 2, 200, count - 1]) {
      expect(await newest(messageOf(`m${n}`))).toMatchObject({ state: 'over' });
      expect(await enter(nameOf(n), undefined)).toMatchObject({ state: 'unknown' });
    }
    // Such a name may have its next run.
    expect(await enter(nameOf(2), claimOf(1_000))).toMatchObject({ state: 'claimed' });
    while ((await names()) > 2) await flush([]);
    expect(await enter(nameOf(2), undefined)).toMatchObject({ state: 'live', id: 'r1000' });
    expect(await newest(messageOf('m2'))).toMatchObject({ id: 'r1000' });
    // The first one goes on.
    const runs = (await server.command('KEYS', key('run:*'))) as string[];
    expect(runs.sort()).toEqual([key('run:r0'), key('run:r1'), key('run:r1000')]);
    expect(await server.command('KEYS', key('forgotten*'))).toEqual([]);
  });
});
