import { afterEach, expect, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { call } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

let app: TestApp;
afterEach(() => app.close());

/** Starts an app that counts each request by the end of its path; returns what asks it. */
async function startWith(limit: number, windowMs = 60_000): Promise<(path: string) => Promise<string>> {
  const pass = requestLimits(
    memoryCounts,
    createLogger('silent'),
  )({ name: 'test', detail: 'Too many.', limit, windowMs });
  app = await startTestApp((on) => {
    on.get('/:key', async (req, res) => {
      await pass(req, res, req.params.key);
      res.end('passed');
    });
  });
  return async (path) => (await call(app.port, path)).body;
}

test('each key has a count of its own', async () => {
  const ask = await startWith(2);
  expect(await ask('/one')).toBe('passed');
  expect(await ask('/one')).toBe('passed');
  expect(await ask('/one')).toContain('Too many.');
  expect(await ask('/two')).toBe('passed');
});

test('a key passes again after its window, which refused requests do not make longer', async () => {
  const ask = await startWith(1, 1_000);
  await until(async () => (await ask('/one')) !== 'passed');
  await until(async () => (await ask('/one')) === 'passed');
});

test('without a limit, nothing is counted', async () => {
  const ask = await startWith(0);
  for (let n = 0; n < 5; n += 1) expect(await ask('/one')).toBe('passed');
});
