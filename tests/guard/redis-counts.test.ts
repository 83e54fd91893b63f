import { afterEach, expect, test } from '@jest/globals';
import { clientAddress } from '../../src/http/client-address.ts';
import { createLogger } from '../../src/logger.ts';
import { redisCounts } from '../../src/pace/redis-counts.ts';
import { requestLimits } from '../../src/pace/request-limits.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import {
  answering,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

let server: RedisServer;
let redis: Redis;
let stage: TestApp;
const printed: string[] = [];

/** Allows two requests from one address, counted in a Redis that need not run yet. */
async function start(windowMs = 60_000): Promise<void> {
  const logger = createLogger('debug', { write: (line: string) => void printed.push(line) });
  redis = openRedis({ url: secret(server.url), logger: createLogger('silent') });
  const options = { name: 'test', limit: 2, windowMs, detail: 'No more.' };
  const limit = requestLimits(redisCounts(redis), logger)(options);
  stage = await startTestApp((app) => {
    app.get('/', async (req, res) => {
      await limit(req, res, clientAddress(req));
      res.end();
    });
  });
}
afterEach(async () => {
  await stage.close();
  redis.close();
  stopRedis();
  expect(printed.splice(0)).toEqual([]);
});

const ask = () => call(stage.port, '/');
const statuses = async (count: number) => {
  const all: number[] = [];
  for (let n = 0; n < count; n += 1) all.push((await ask()).status);
  return all;
};

describeWithRedis('counts in Redis', () => {
  test('begin when Redis starts later than the relay', async () => {
    server = await startRedis();
    await server.stop();
    await start();
    expectProblem(await ask(), 503, 'session_store_unavailable');
    await server.start();
    await answering(redis);
    expect(await statuses(4)).toEqual([200, 200, 429, 429]);
  });

  test('continue after SCRIPT FLUSH, and begin again after a restart of Redis', async () => {
    server = await startRedis();
    await start();
    await answering(redis);
    expect(await statuses(1)).toEqual([200]);
    await server.command('SCRIPT', 'FLUSH');
    expect(await statuses(2)).toEqual([200, 429]);
    await server.stop();
    expectProblem(await ask(), 503, 'session_store_unavailable');
    await server.start();
    await answering(redis);
    expect(await statuses(3)).toEqual([200, 200, 429]);
  });

  test('end with their window, which refused requests do not make longer', async () => {
    server = await startRedis();
    await start(1_000);
    await answering(redis);
    await until(async () => (await ask()).status === 429);
    await until(async () => (await ask()).status === 200);
  });

  test('are exact for simultaneous requests', async () => {
    server = await startRedis();
    await start();
    await answering(redis);
    const answers = await Promise.all(Array.from({ length: 10 }, ask));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2);
  });
});
