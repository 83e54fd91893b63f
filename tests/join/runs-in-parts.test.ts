import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { type RunCalls, runCalls } from '../../src/join/run-calls.ts';
import { runCodec } from '../../src/join/run-codec.ts';
import { ENTER, FLUSH, FORGET, NEWEST, READ, SESSION_ENDED, TAKE_OVER } from '../../src/join/run-lua.ts';
import { NEWS, sizesOf } from '../../src/join/run-lua-common.ts';
import { runParts } from '../../src/join/run-parts.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { describeWithRedis } from '../support/redis.ts';
import { startCluster } from '../support/redis-cluster.ts';
import { stopProcessesOfRedis } from '../support/redis-process.ts';
import { runSealer } from '../support/run-sealer.ts';
import { until } from '../support/until.ts';

jest.setTimeout(60_000);

const parts = runParts(true);
let redis: Redis;
let calls: RunCalls;
beforeAll(async () => {
  const { url } = await startCluster();
  redis = openRedis({ url: secret(url), isCluster: true, logger: createLogger('silent') });
  await redis.ready(5_000);
  const scripts = {
    ...{ enter: redis.script(ENTER), newest: redis.script(NEWEST), forget: redis.script(FORGET) },
    ...{ flush: redis.script(FLUSH), read: redis.script(READ), takeOver: redis.script(TAKE_OVER) },
    sessionEnded: redis.script(SESSION_ENDED),
  };
  const bounds = {
    ...{ keepMs: 20_000, rememberMs: 80_000_000, lifeMs: 600_000, parts },
    ...{ maxBytes: 1 << 20, maxBytesInAll: 1 << 20, maxNames: 100_000 },
  };
  calls = runCalls(scripts, bounds, runCodec(runSealer));
});
afterAll(() => {
  redis.close();
  stopProcessesOfRedis();
});

/** Runs of so many conversations are in all parts. */
const NAMES = Array.from({ length: 200 }, (_, n) => ({
  ...{ conversation: keyPart(`c${n}`), message: keyPart(`m${n}`), key: keyPart(`k${n}`), isKept: true },
}));
const NOTHING = { data: '', head: '', hold: '', cursor: '', end: '', isInside: false, state: '' as const };

describeWithRedis('the runs in a cluster', () => {
  test('are in parts on all masters, and the id of each tells its part', async () => {
    const heard: string[] = [];
    await redis.subscribe(NEWS, (news) => heard.push(...news.split(' ')));
    const claims = NAMES.map(({ conversation }, n) => ({
      ...{ id: calls.newId(conversation), token: `t${n}`, requestId: `request-${n}` },
    }));
    const told = await Promise.all(
      claims.map((claim, n) => calls.enter(NAMES[n] as (typeof NAMES)[0], claim)),
    );
    expect(new Set(told.map(({ state }) => state))).toEqual(new Set(['claimed']));
    expect(new Set(claims.map(({ id }) => parts.ofRun(id)))).toEqual(new Set(parts.keys));
    // A reader elsewhere asks for news.
    for (const { id } of claims) await calls.read(id, { after: '', at: 0, wantsHead: false });
    await until(() => heard.filter((news) => news.startsWith('?')).length === NAMES.length);
    const batches = claims.map(({ id, token }, n) => ({
      ...{ ...NOTHING, id, token, offset: 0, length: 10, data: `data-${n}` },
    }));
    const lost = {
      ...NOTHING,
      id: calls.newId(NAMES[0]?.conversation as string),
      token: 't',
      offset: 0,
      length: 0,
    };
    const byPart = [...Map.groupBy([...batches, lost], ({ id }) => calls.partOf(id)).values()];
    const answers = await Promise.all(byPart.map((some) => calls.flush(some)));
    expect(answers.map((some) => some.map(([status]) => status))).toEqual(
      byPart.map((some) => some.map((batch) => (batch === lost ? 'gone' : 'written'))),
    );
    await until(() => claims.every(({ id }) => heard.includes(id)));
    for (const [n, { id }] of claims.entries()) {
      const { entries } = await calls.read(id, { after: '', at: 0, wantsHead: false });
      expect(entries[0]?.[1]).toContain(`data-${n}`);
      const name = NAMES[n] as (typeof NAMES)[0];
      expect(await calls.newest(name)).toMatchObject({ state: 'live', id, requestId: `request-${n}` });
      expect(await calls.takeOver(id, 'other')).toBeUndefined();
    }
    const sizes = await Promise.all(
      parts.keys.map((key) => redis.run((client) => client.hGet(sizesOf(key), 'all'))),
    );
    expect(sizes.map(Number).every((size) => size > 0)).toBe(true);
    const [name = NAMES[1]] = NAMES;
    await calls.forget(name?.conversation as string, '');
    expect(await calls.enter(name as (typeof NAMES)[0], undefined)).toMatchObject({ state: 'unknown' });
    expect((await redis.onEach((server) => server.dbSize())).every((keys) => keys > 50)).toBe(true);
  });
});
