/** A test file that fails, and leaves a Redis server and a process of the relay behind. `at-end-of-file.test.ts` runs it. */
import { test } from '@jest/globals';
import { startRedis } from '../redis/redis-server.ts';
import { startProcess } from './process.ts';

test('fails before it stops what it has started', async () => {
  const { url } = await startRedis();
  const { pid } = startProcess({ environment: { PORT: '0' } });
  process.stdout.write(`left: ${JSON.stringify({ port: Number(new URL(url).port), pid })}\n`);
  throw new Error('on purpose');
});
