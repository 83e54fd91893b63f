import { afterEach, expect, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { call } from '../support/call.ts';
import { startTestApp, type TestApp } from '../support/test-app.ts';

let app: TestApp;
afterEach(() => app.close());

const OPTIONS = { name: 'test', windowMs: 60_000, detail: 'Too many.' };

/** Starts an app that counts each request by the end of its path; returns what asks it. */
async function startWith(limit: number): Promise<(path: string) => Promise<string>> {
  const pass = requestLimits(memoryCounts, createLogger('silent'))({ ...OPTIONS, limit });
  app = await startTestApp((on) => {
    on.get('/count/:key', async ({ params }, res) => {
      await pass.count(params.key);
      res.end('passed');
    });
    on.get('/:key', async (req, res) => {
      await pass(req, res, req.params.key);
      res.end('passed');
    });
  });
  return async (path) => (await call(app.port, path)).body;
}

test('what is counted by the store and through the middleware has one count for each key', async () => {
  const ask = await startWith(2);
  expect(await ask('/count/one')).toBe('passed');
  expect(await ask('/one')).toBe('passed');
  const refused = await Promise.all([ask('/count/one'), ask('/one')]);
  for (const body of refused) expect(body).toContain('Too many.');
  expect(await ask('/count/two')).toBe('passed');
});

test('without a limit, nothing is counted', async () => {
  const ask = await startWith(0);
  for (let n = 0; n < 5; n += 1) expect(await ask('/count/one')).toBe('passed');
});
